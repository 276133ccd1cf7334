CREATE SCHEMA patchlog;
CREATE TABLE patchlog.schema_version (one boolean PRIMARY KEY CHECK (one), version integer NOT NULL);
-- The tables and indexes of the schema. If the schema has another name, that name replaces
-- "patchlog" in each statement.
--
-- Names, ids and values are arbitrary bytes, so their type is bytea. A name or an id may be longer
-- than 2704 bytes, the limit of an entry of a B-tree. An exact search therefore uses the
-- SHA-256 in the columns hash, birth and id. An ordered listing uses an index on the first 1024 bytes.

-- One row for each session. All writers of a session lock this row. An append updates the row in
-- place (HOT), because no indexed column changes and fillfactor leaves space in the page.
CREATE TABLE patchlog.sessions (
    num      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- identifies the session in the other tables; never reused
    hash     bytea UNIQUE,              -- SHA-256 of the name; null if state is not 0
    birth    bytea NOT NULL UNIQUE,     -- SHA-256 of the creation id
    name     bytea,                     -- null if state is not 0
    creation bytea NOT NULL,
    state    smallint NOT NULL,         -- 0: exists, 1: being removed, 2: creation forbidden by a fence, 3: deleted
    last     bigint NOT NULL,           -- seq of the last record; 0 if the log is empty
    token    bigint NOT NULL,           -- token of the last commit, an unsigned number stored as bigint
    sum      bigint NOT NULL,           -- checksum of the log, computed from the checksums of the records
    edition  bigint NOT NULL DEFAULT 0, -- number of commits that replaced records
    counts   bytea,                     -- statistics of the log, encoded by the store
    family   bytea,                     -- SHA-256 of the family's id (see Relatives in store/backend); null for none
    created  timestamptz NOT NULL DEFAULT now(),
    touched  timestamptz NOT NULL DEFAULT now() -- time of the last write to this row
) WITH (fillfactor = 60);
CREATE INDEX sessions_prefix ON patchlog.sessions (substring(name FROM 1 FOR 1024)) WHERE hash IS NOT NULL;
CREATE INDEX sessions_family ON patchlog.sessions (family) WHERE family IS NOT NULL;
CREATE INDEX sessions_left ON patchlog.sessions (created) WHERE hash IS NULL;

-- The meta record of each session. It is written at creation, and again if an erasure changes it.
CREATE TABLE patchlog.metas (
    num  bigint PRIMARY KEY,
    data bytea NOT NULL
);

-- The records of the sessions. The seqs of a session are 1, 2, 3 ...
CREATE TABLE patchlog.records (
    num  bigint NOT NULL,
    seq  bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (num, seq)
);

-- The ids that the records of a session use. id is the first 16 bytes of the SHA-256 of the id, and
-- seq is the record that uses the id.
CREATE TABLE patchlog.ids (
    num bigint NOT NULL,
    id  bytea NOT NULL,
    seq bigint NOT NULL,
    PRIMARY KEY (num, id)
);

-- The newest snapshot of each session. seq is the last record that the snapshot covers, and sum is
-- the checksum of the log up to seq. The snapshot refers to the records from firsts[i] to lasts[i].
CREATE TABLE patchlog.snapshots (
    num    bigint PRIMARY KEY,
    seq    bigint NOT NULL,
    sum    bigint NOT NULL,
    data   bytea NOT NULL,
    firsts bigint[] NOT NULL DEFAULT '{}',
    lasts  bigint[] NOT NULL DEFAULT '{}'
);

-- Values that several sessions share. hash is the SHA-256 of the name.
CREATE TABLE patchlog.shared (
    hash bytea PRIMARY KEY,
    name bytea NOT NULL,
    data bytea NOT NULL
) WITH (fillfactor = 60);
CREATE INDEX shared_prefix ON patchlog.shared (substring(name FROM 1 FOR 1024));

-- The version of each scope of shared values. A commit to the scope sets token to a new random
-- number. hash is the SHA-256 of the scope's name.
CREATE TABLE patchlog.scopes (
    hash  bytea PRIMARY KEY,
    token bigint NOT NULL
) WITH (fillfactor = 60);

-- The current and the expired leases. hash is the SHA-256 of the name. If taken is more than a
-- minute in the future, the clock was set back, and the lease counts as expired.
CREATE TABLE patchlog.leases (
    hash  bytea PRIMARY KEY,
    name  bytea NOT NULL,
    owner bytea NOT NULL,
    taken timestamptz NOT NULL,
    until timestamptz NOT NULL
);
CREATE INDEX leases_until ON patchlog.leases (until);

-- Statistics contain sample values, which an erasure would not remove. So the server collects no
-- statistics of columns with session content.
ALTER TABLE patchlog.records ALTER COLUMN data SET STATISTICS 0;
ALTER TABLE patchlog.metas ALTER COLUMN data SET STATISTICS 0;
ALTER TABLE patchlog.snapshots ALTER COLUMN data SET STATISTICS 0;
ALTER TABLE patchlog.shared ALTER COLUMN data SET STATISTICS 0;

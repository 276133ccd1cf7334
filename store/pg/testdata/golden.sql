CREATE SCHEMA patchlog;
CREATE TABLE patchlog.schema_version (one boolean PRIMARY KEY CHECK (one), version integer NOT NULL);
-- The schema, as it is made under the default name. Another name takes the
-- place of "patchlog." throughout.
--
-- Names, ids and values are bytea: they are bytes of any content and length. A btree entry
-- holds 2704 bytes, so that what may be longer is found by its SHA-256 (hash, birth, id),
-- and in order by the beginning that is indexed.

-- A row for each session, which is all that two writers of it contend for. Each append
-- updates it in place: no indexed column changes, and the page has room.
CREATE TABLE patchlog.sessions (
    num      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- names the session in the other tables; is never used again
    hash     bytea UNIQUE,              -- SHA-256 of the name; null unless state is 0
    birth    bytea NOT NULL UNIQUE,     -- SHA-256 of the creation id
    name     bytea,                     -- null unless state is 0
    creation bytea NOT NULL,
    state    smallint NOT NULL,         -- 0 a session, 1 to be removed, 2 a creation that must never take place, 3 deleted
    last     bigint NOT NULL,           -- seq of the last record, 0 if there is none
    token    bigint NOT NULL,           -- of the last commit; the bits of an unsigned number
    sum      bigint NOT NULL,           -- the chain: CRC32C over the records' checksums
    edition  bigint NOT NULL DEFAULT 0, -- how often records were replaced
    counts   bytea,                     -- what the log comes to, as the store has it
    family   bytea,                     -- SHA-256 of the family that the session was created with; null for none
    created  timestamptz NOT NULL DEFAULT now(),
    touched  timestamptz NOT NULL DEFAULT now() -- when it was last written to
) WITH (fillfactor = 60);
CREATE INDEX sessions_prefix ON patchlog.sessions (substring(name FROM 1 FOR 1024)) WHERE hash IS NOT NULL;
CREATE INDEX sessions_family ON patchlog.sessions (family) WHERE family IS NOT NULL;
CREATE INDEX sessions_left ON patchlog.sessions (created) WHERE hash IS NULL;

-- The meta record of each session, which is written once, and again if something of it is erased.
CREATE TABLE patchlog.metas (
    num  bigint PRIMARY KEY,
    data bytea NOT NULL
);

-- The log: seqs 1, 2, 3 ... of each session.
CREATE TABLE patchlog.records (
    num  bigint NOT NULL,
    seq  bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (num, seq)
);

-- Which record takes an id. id is the first 16 bytes of the id's SHA-256.
CREATE TABLE patchlog.ids (
    num bigint NOT NULL,
    id  bytea NOT NULL,
    seq bigint NOT NULL,
    PRIMARY KEY (num, id)
);

-- The newest snapshot of a session, the seq that it is of, the log's chain up to there, and the ranges of seqs of the
-- records that it refers to.
CREATE TABLE patchlog.snapshots (
    num    bigint PRIMARY KEY,
    seq    bigint NOT NULL,
    sum    bigint NOT NULL,
    data   bytea NOT NULL,
    firsts bigint[] NOT NULL DEFAULT '{}',
    lasts  bigint[] NOT NULL DEFAULT '{}'
);

-- Values beside the sessions. hash is the SHA-256 of the name.
CREATE TABLE patchlog.shared (
    hash bytea PRIMARY KEY,
    name bytea NOT NULL,
    data bytea NOT NULL
) WITH (fillfactor = 60);
CREATE INDEX shared_prefix ON patchlog.shared (substring(name FROM 1 FOR 1024));

-- The version of each scope of shared values: a number that each commit to the scope draws. hash is the SHA-256 of the
-- scope.
CREATE TABLE patchlog.scopes (
    hash  bytea PRIMARY KEY,
    token bigint NOT NULL
) WITH (fillfactor = 60);

-- Leases that are held, or have run out. hash is the SHA-256 of the name. If taken is later than now, the clock has been
-- set back, and the lease is taken as run out.
CREATE TABLE patchlog.leases (
    hash  bytea PRIMARY KEY,
    name  bytea NOT NULL,
    owner bytea NOT NULL,
    taken timestamptz NOT NULL,
    until timestamptz NOT NULL
);
CREATE INDEX leases_until ON patchlog.leases (until);

-- Statistics keep samples of a column, which would outlive an erasure: none of what sessions say.
ALTER TABLE patchlog.records ALTER COLUMN data SET STATISTICS 0;
ALTER TABLE patchlog.metas ALTER COLUMN data SET STATISTICS 0;
ALTER TABLE patchlog.snapshots ALTER COLUMN data SET STATISTICS 0;
ALTER TABLE patchlog.shared ALTER COLUMN data SET STATISTICS 0;

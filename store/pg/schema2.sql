-- Version 2 of the schema: how often records of a session were replaced.
ALTER TABLE patchlog.sessions ADD COLUMN edition bigint NOT NULL DEFAULT 0;

-- What sessions say is no matter of statistics, which would keep samples of it when it is erased. A
-- column gets the type that it has, since that drops those that there are.
ALTER TABLE patchlog.records ALTER COLUMN data TYPE bytea, ALTER COLUMN data SET STATISTICS 0;
ALTER TABLE patchlog.metas ALTER COLUMN data TYPE bytea, ALTER COLUMN data SET STATISTICS 0;
ALTER TABLE patchlog.snapshots ALTER COLUMN data TYPE bytea, ALTER COLUMN data SET STATISTICS 0;
ALTER TABLE patchlog.shared ALTER COLUMN data TYPE bytea, ALTER COLUMN data SET STATISTICS 0;

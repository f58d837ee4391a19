-- The checksum of a row, which the store computes: over kind, id, revision and content of a document, and over operation,
-- number and content of a journal line. This migration computes those of existing rows. An earlier program would write rows
-- without it, so it must refuse the store.
ALTER TABLE object ADD COLUMN checksum BIGINT;
ALTER TABLE journal ADD COLUMN checksum BIGINT;

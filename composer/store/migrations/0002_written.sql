-- Documents of a kind in the order in which they were written last: what is the newest, and what may be
-- forgotten, at a cost that does not grow with what is kept.
CREATE INDEX object_written ON object (kind, revision);

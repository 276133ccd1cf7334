package patch

// CompactionAuthor is the author of the patches that compaction writes.
const CompactionAuthor = "compaction"

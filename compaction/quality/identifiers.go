package quality

import "github.com/patchlog-dev/patchlog/compaction/identifiers"

// Identifiers returns what a text has that is of use only word for word; see
// [identifiers.In].
func Identifiers(text string) []string { return identifiers.In(text) }

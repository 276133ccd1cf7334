// Package compaction keeps long sessions short. A compaction pass selects a window of the visible log, asks a
// summarizer for a summary, and logs a patch that replaces the window's events with the summary. The log keeps all
// events. If two compactors compact the same session at once, one gets a conflict and stops.
//
// [Plan] chooses the next window and gives the reason. It is a pure function. [Compactor] runs passes on a log such as
// a store.Store. [Worker] runs a Compactor in the background.
//
// A [Summarizer] writes the summaries. [github.com/patchlog-dev/patchlog/compaction/gemini.Summarizer] uses a model,
// [Extractive] works offline, and callers can implement their own. Package
// [github.com/patchlog-dev/patchlog/compaction/adkrecord] converts ADK's compaction records. The contract is
// docs/COMPACTION.md.
package compaction

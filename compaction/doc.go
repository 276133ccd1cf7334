// Package compaction keeps long sessions short. It plans a window over a view's visible log, lets a summarizer
// summarise the window's events, and logs a patch that replaces these events by the summary in the view. The log keeps
// every event. If two compactors compact a session at once, one of them gets a conflict and stops.
//
// [Plan] decides what to compact, and gives its reason; it is a pure function. [Compactor] carries out the decision on
// a log such as a store.Store, and [Worker] runs a Compactor in the background. A [Summarizer] writes the summaries:
// [github.com/patchlog-dev/patchlog/compaction/gemini.Summarizer] with a model, [Extractive] offline, or your own
// implementation. Package [github.com/patchlog-dev/patchlog/compaction/adkrecord] reads ADK's compaction records. The
// contract is docs/COMPACTION.md.
package compaction

// Package compaction keeps long sessions short: it plans a window over a view's visible
// log, has it summarised, and applies a patch that puts the summary in the events'
// place. It works by writing patches: the log keeps every event, the patch names
// the view that it was made from, and of two compactors one gets a conflict and stops.
//
// [Plan] is the decision, a pure function of a view and a [Config] that explains itself.
// [Compactor] carries it out on a log such as a store.Store, [Worker] does so in the
// background. A [Summarizer] writes the summaries: [github.com/patchlog-dev/patchlog/compaction/gemini.Summarizer] by a model, [Extractive]
// offline, or one of your own. Package
// [github.com/patchlog-dev/patchlog/compaction/adkrecord] reads ADK's compaction records. The contract is docs/COMPACTION.md.
package compaction

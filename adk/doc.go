// Package adk runs agents built on Google's Agent Development Kit for Go on patchlog.
//
// [NewService] gives a session.Service over a store, for runner.Config or ADK's REST
// server in place of session.InMemoryService:
//
//	db, err := store.Open("sessions.db", store.Options{})
//	sessions, err := adk.NewService(db, adk.Options{Compaction: compaction.DefaultConfig()})
//	r, err := runner.New(runner.Config{AppName: "app", Agent: agent, SessionService: sessions})
//	...
//	sessions.Close(ctx) // before db
//
// [Wrap] gives the same over the sessions of another session.Service.
//
// Sessions show the visible log and the replayed state. Every event stays in the audit
// log, whatever patches hide from the model: [Service.ApplyPatch], [Service.Preview],
// [Service.Revert], [Service.Rewind], [Service.RawEvents] and [Service.ViewAt] work on
// that. An append goes to the end of the log, so no session is stale. An event id is used
// once in a session, so appending an event again is safe. Go values in the state come back
// with their types (see [NewEvent]).
//
// With [Options.Compaction] sessions are compacted in the background after each turn,
// which [Service.Plugin] reports exactly, and during long turns. What ADK needs to continue
// a session stays raw. No failure of a summarizer reaches a run: [Service.Compact] returns
// it, [Service.LastCompaction] and [Options.Observe] report it. If a user may answer a
// request that was summarised, call [Service.RestoreCalls] before the runner's Run.
//
// [Service.RecallTools] are tools by which an agent finds what is hidden.
// [Service.Memory] is a memory service over the logs. Models see the visible log; people
// see the history by [WithHistory], [HistoryHandler] and [Service.HistoryMemory].
// [Service.RESTHandler] adds routes that rewind and fork sessions to ADK's REST API.
//
// docs/ADK.md is the integration guide: what differs from ADK's own services, sessions in
// other services, compaction beside ADK's own, spans and metrics.
package adk

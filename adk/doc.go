// Package adk runs agents built on Google's Agent Development Kit for Go on patchlog.
//
// NewService returns a session.Service over a store. Use it in runner.Config, or in ADK's REST server, in place of
// session.InMemoryService:
//
//	db, err := store.Open("sessions.db", store.Options{})
//	sessions, err := adk.NewService(db, adk.Options{Compaction: compaction.DefaultConfig()})
//	r, err := runner.New(runner.Config{AppName: "app", Agent: agent, SessionService: sessions})
//	...
//	sessions.Close(ctx) // before db
//
// Wrap returns such a service over another session.Service, which keeps the sessions.
//
// A [Session] shows the visible log and the state replayed from it. Patches hide events from the model: see
// [Service.ApplyPatch], [Service.Preview], [Service.Revert] and [Service.Rewind]. The audit log keeps every event until
// it is erased; [Service.RawEvents] and [Service.ViewAt] read this log. An append goes to the end of the log, even if
// others have appended meanwhile. An event id is used once in a session, so appending an event again is safe. Go values
// in the state keep their types (see [NewEvent]).
//
// With [Options.Compaction] sessions are compacted in the background after each turn, and during long turns.
// [Service.Plugin] reports the ends of turns exactly. Compaction keeps the events that ADK needs to continue a session.
// A summarizer's failure never fails a run: [Service.Compact] returns it, and [Service.LastCompaction] and
// [Options.Observe] report it. If a user may answer a request that was summarised, call [Service.RestoreCalls] before
// the runner's Run.
//
// With the tools of [Service.RecallTools] an agent finds hidden events. [Service.Memory] is a memory service over the
// logs. Models see the visible log; [WithHistory], [HistoryHandler] and [Service.HistoryMemory] show people the
// history, with the original events in place of summaries. [Service.RESTHandler] adds routes that rewind and fork
// sessions to ADK's REST API.
//
// docs/ADK.md is the integration guide: what differs from ADK's own services, sessions in
// other services, compaction beside ADK's own, spans and metrics.
package adk

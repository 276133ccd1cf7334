// Package adk connects agents written with Google's Agent Development Kit for Go (ADK) to patchlog.
//
// [NewService] returns a session.Service that keeps its sessions in a patchlog store. Use it in place of
// session.InMemoryService, in runner.Config or in ADK's REST server:
//
//	db, err := store.Open("sessions.db", store.Options{})
//	sessions, err := adk.NewService(db, adk.Options{Compaction: compaction.DefaultConfig()})
//	r, err := runner.New(runner.Config{AppName: "app", Agent: agent, SessionService: sessions})
//	...
//	sessions.Close(ctx) // before db.Close
//
// [Wrap] returns a [Service] whose sessions stay in another session.Service.
//
// # Sessions
//
// Every session has an audit log. The audit log contains events and patches, and it only grows. A patch changes which
// events the model sees. The events that the model sees are the visible log of the session.
//
// A [Session] shows the visible log, and the state computed from it. [Service.ApplyPatch], [Service.Preview],
// [Service.Revert] and [Service.Rewind] work with patches. [Service.RawEvents] and [Service.ViewAt] read the audit
// log. The audit log keeps hidden events until [Service.Erase] erases them.
//
// An append adds its event at the end of the audit log, even if other writers have appended in the meantime. An event
// id occurs only once in a session, so appending the same event again changes nothing. Go values in the state keep
// their types, as [NewEvent] describes.
//
// # Compaction
//
// Compaction replaces old events by summaries. If [Options.Compaction] enables it, the service compacts a session in
// the background after each turn, and also during long turns. Compaction keeps the events that ADK needs to continue
// the session.
//
// A run never fails because a summarizer failed. [Service.LastCompaction] and [Options.Observe] report the failure,
// and [Service.Compact] returns it.
//
// Add [Service.Plugin] to the runner, so that the service learns when a turn ends. If a user may answer a request
// that a summary hides, call [Service.RestoreCalls] before the runner's Run.
//
// # Hidden events
//
// An agent with the tools of [Service.RecallTools] can search and read hidden events. [Service.Memory] returns an ADK
// memory service that searches the logs.
//
// The history of a session is its visible log with the original events instead of summaries. It is meant for people.
// [WithHistory], [HistoryHandler] and [Service.HistoryMemory] provide it. [Service.RESTHandler] adds routes to ADK's
// REST API that rewind and fork sessions.
//
// # More
//
// docs/ADK.md is the integration guide. It describes the differences from ADK's own services, sessions in other
// services, the use with ADK's own compaction, and the spans and metrics.
package adk

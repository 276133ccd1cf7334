// Package adk runs agents built on Google's Agent Development Kit for Go on patchlog.
//
// [NewService] gives a session.Service over a store, for runner.Config or ADK's REST
// server in place of session.InMemoryService:
//
//	db, err := store.Open("sessions.db", store.Options{})
//	sessions, err := adk.NewService(db, adk.Options{})
//	r, err := runner.New(runner.Config{AppName: "app", Agent: agent, SessionService: sessions})
//
// Its sessions show the visible log and the replayed state. Every event stays in the
// audit log, whatever patches hide from the model: [Service.ApplyPatch],
// [Service.Preview], [Service.Revert], [Service.Rewind], [Service.RawEvents] and
// [Service.ViewAt] work on that. [Wrap] gives the same over another session.Service.
//
// # What differs from ADK's own services
//
//   - An append goes to the end of the log whatever was logged since the session was got:
//     there is no stale session.
//   - After an append a session shows what others logged meanwhile, patches too, unless
//     the append is a workflow node's (see [Service.AppendEvent]).
//   - An event's id is used once in a session. Appending an event again that is there
//     already, with the same content, does nothing, so retrying is safe. An event without
//     an id is given one.
//   - A Go value in the state, or anywhere else where ADK has an `any`, comes back with its
//     Go type if that is made of booleans, numbers, strings, slices and maps with string
//     keys; another comes back as what its JSON says (see [NewEvent]).
//   - What a caller does to an event that a session gave it changes nothing.
//   - An append whose context ends before it is on its way to the storage fails, as with
//     ADK's SQL service; its service in memory knows no contexts. A task that is cancelled
//     at once may so have ended before its agent was asked.
//
// Where ADK's service in memory refuses, this one does in the same words, and a session's
// time of the last update is the same. Drawn conversations of many kinds of agents, played
// on both with restarts between and within turns, go the same way, errors included; so they
// do where sessions are compacted. ADK's own tests that ask for a session service end as
// they do with ADK's, but for those that differences.txt in the command upstream lists with
// the reasons.
//
// # Compaction
//
// With [Options.Compaction] sessions are compacted by themselves:
//
//	sessions, err := adk.NewService(db, adk.Options{Compaction: compaction.DefaultConfig()})
//	defer sessions.Close(ctx) // before db
//
// Summaries are made by the configuration's Summarizer, which may be any model that ADK can use
// (see [Summarizer]) or was written for ADK's own compaction ([EventsSummarizer]); without one
// by [Options.Model], with [compaction.Extractive] as fallback; without that by
// [compaction.Extractive] alone. Give as Model the one that the root agent has: up to v2.2 at
// least, ADK has no way to ask an agent for it. [Options.CompactionByApp] has apps compacted
// each in its own way, or not at all. A summary's event has
// the author of all that it stands for, or user where several had a say: for an agent with
// IncludeContents none the turn begins at the newest event of somebody else, and a summary
// of what the agent has done since must not pass for that.
//
//   - In the background, after each turn. The service sees from the events that a turn has
//     ended; [Service.Plugin] tells it better. The newest invocation counts as running
//     until the next one begins, or the plugin says that it has ended: its last message of
//     the user stays, and the interval trigger leaves its events alone.
//   - Inside a run, where TokenThreshold, InvocationTokens or ClearAfter is set, as they are
//     by default: after an event with a function's response was appended, so that the model's
//     next prompt is the shorter one. The run waits for that, but for no longer than [Options.CompactionTimeout] an invocation, not counting
//     what a summary came of. Runs of workflow nodes, tasks, and agents with a branch of
//     their own are left to the background.
//
// No failure of a summarizer reaches a run. [Service.Compact] compacts now and returns the error;
// [Service.LastCompaction] says how the last attempt ended; [Options.OnCompaction] is told of
// each. [Options.Prepare] is asked before events are summarised, and may say what must be kept;
// [Options.BeforeSummary] sees a summary before it is written. Both may refuse.
//
// What ADK looks for in a session to decide who goes on, and with what, stays raw: the
// newest event of each agent, so that messages go on to the sub-agent that was handed the
// conversation; where the user is being asked something, what a run resumed by the answer
// is rebuilt from, with the call that is to be confirmed; of each task, the call that began
// it or the event that ended it.
//
// What waits for the user stays for the newest MaxWaitingCalls requests. An older one that
// a summary hides is in sight again when it is answered: AppendEvent sees to it that the
// prompt has the call. A runner looks for the call before that, to find out which agent
// made it and which invocation goes on; for that, call [Service.Recall] before Run:
//
//	err := sessions.Recall(ctx, sess, answer)
//	for event, err := range r.Run(ctx, userID, sessionID, answer, cfg) {
//
// Without, the agent that spoke last gets the answer, in an invocation of its own, and if it
// is not the one that made the call, ADK ends the run with an error.
//
// Where processes share a storage, each may run any session. A service takes a lease for
// each invocation that it runs, so that another one leaves the session uncompacted while
// it lasts, and one for compacting, so that a summary is paid for once. Without the plugin
// an agent's final response is the end of that. A process that ends without a word keeps
// others from compacting the session for ten minutes. So does
// an invocation that appends nothing for that long lose its protection: its events may be
// summarised as those of one that has ended. Two runs of one session at a time append to
// one log, in whichever order they come.
//
// # Looking back
//
// What is not shown any more can be looked up by the agent itself, with the two tools of
// [Service.RecallTools]:
//
//	recalls, err := sessions.RecallTools(adk.RecallOptions{})
//	agent, err := llmagent.New(llmagent.Config{Name: "clerk", Model: llm, Tools: append(tools, recalls...)})
//
// They search and read what the agent would be shown without compaction, within bounds of tokens. With
// them, each summary in a session's events ends with a line that names its records; the log has the
// summary without. Where sessions are compacted, a result of a tool that is longer than
// [Options.MaxResultTokens] is shown with its beginning and its end, from the append on, and the
// tools read the rest; who runs the agent gets the event as the tool returned it. Over another
// service, the patch that does so is an event behind the result, and if it cannot be appended, or the
// service gives events other ids, the result is shown whole.
//
// [Service.LogMemory] is a memory service over the sessions themselves, for load_memory and
// preload_memory. [Service.Memory] is for another one.
//
// # ADK's own compaction
//
// From v2.3 on, ADK's runner can compact by itself (Compaction in its runner.Config). It appends
// records, events that say in their actions which stretch of time a text stands for, and
// applies them when it makes a prompt. They come back whole, from this service as from
// ADK's own; this module is built with v2.2, and keeps what newer types have besides.
//
// Switch one of the two on. Where both are, no event is lost and the prompts stay valid: as
// soon as ADK has appended a record, the service makes a summary of its own of it, in the
// place of the events that the record stands for, and takes the record out of sight; what
// must stay raw stays (see above), and so do records that cannot be adopted, which are ADK's
// to apply. But each of the two pays for its summaries, and ADK counts a summary of
// this service's as a turn.
//
// To ADK, a summary of this service's is an event like others, and no record: where its own
// compaction is off, ADK leaves records out of prompts, and where it is on, it would move
// their texts.
//
// # History
//
// Models see the visible log; people should see what was said. A session that is got with a
// context of [WithHistory] shows its history, summaries replaced by what they stand for, from one
// and the same service: [HistoryHandler] marks the requests of ADK's REST API and developer UI
// that read, and [Service.Memory] has a memory service given histories. Runs are not marked,
// and pay nothing. A launcher's router takes the handler where it is handed out:
//
//	func (l *mine) SetupSubrouters(router *mux.Router, config *launcher.Config) error {
//		router.Use(adk.HistoryHandler)
//
// What reads by other requests marks its contexts itself, such as the get_session method of
// ADK's server for Agent Engine, which is a POST. A history is read anew each time, and takes
// reading and decoding the whole conversation.
//
// # Other services
//
// [Wrap] gives the same service over sessions that another one has: ADK's in memory, on SQL,
// on Vertex AI.
//
//	base, err := database.NewSessionService(postgres.Open(url))
//	sessions, err := adk.Wrap(base, adk.Options{Compaction: compaction.DefaultConfig()})
//
// The base keeps every event, as it was appended, and stays usable without the wrapper, whose
// patches ADK passes over. A patch, or several of one call, is one event more: author user,
// without content, and in its custom metadata, under _patchlog, a text that says what it does,
// which events it removes, by their ids, and which stand around them. That of a summary has
// ADK's record of a compaction beside it, under _adk_compaction.
//
//   - A patch applies where exactly those events stand together, in their order but for events of
//     one time, which a base may give in another order at each read; nowhere else. One that
//     applies nowhere is skipped, with a warning to the logger, and [fold.View.Skipped] lists it. So it goes if two
//     processes patched the same events at once, or if an event came late that belongs
//     between, by its time. The order of patches is that of their times, and then their ids, so
//     that all who read the base agree.
//   - Seqs are the places in the base's list as this service has seen it first. If the base gives
//     events in another order than that, such as those that agents appended side by side and
//     SQL sorts by time, the view of a session that was got before counts otherwise; a patch
//     made from it still applies where it did, or is a conflict.
//   - Of what others append to the base, a session learns when it is got, when something is
//     patched, and when the base refuses an append because of it; that append is then made again. A
//     base that refuses nothing, like the one in memory, does not tell.
//   - An append that failed is looked for in the base: if it is there, it has succeeded. If it cannot be found
//     out, the error matches [store.ErrOutcomeUnknown].
//   - The state is replayed, from the state at the creation, which the base keeps under the key
//     _patchlog_initial, and the events that patches let stand; what a cut takes out of it, the
//     base still has. A session that was created without the wrapper began with what no event has
//     set since. app: and user: keys are the base's own.
//   - What the base loses is lost: ADK's SQL service makes floats of integers and drops fields
//     that it has no column for. Where it gives events ids of its own, as Vertex AI does, an
//     event has that id from the next Get on, and retrying an append is not safe.
//   - An event that others appended with values that JSON cannot carry is shown with their text.
//   - There are no leases. Several processes may compact sessions of one base, and then pay for
//     summaries of which one applies; but a patch makes a session stale that is being run
//     without the wrapper elsewhere, if the base refuses stale sessions.
//
// A read costs what the base's read costs, and the conversion of events that are new; what was read
// before is kept, up to some 64 MiB for sessions that are not in use.
//
// # Telemetry
//
// With an OpenTelemetry provider, in [Options] or the global one, the service reports
// spans, which carry gen_ai.conversation.id (the session id), patchlog.app_name and,
// where they failed, error.type:
//
//   - append_event: AppendEvent; patchlog.event.id, patchlog.seq
//   - apply_patch: ApplyPatch, and each patch of compaction; patchlog.patch.id, patchlog.patch.type, patchlog.seq
//   - fold_session: Get, and each session of List; patchlog.seq, patchlog.visible_events
//   - compact_events <trigger>: an attempt to compact; gen_ai.operation.name (compact_events),
//     gen_ai.compaction.outcome (wrote, declined, conflict, vetoed or failed),
//     gen_ai.compaction.trigger by ADK's names (sliding_window, token_threshold, or clearing and
//     tiers, for which ADK has none), patchlog.compaction.trigger by patchlog's (interval,
//     clearing, tokens or tiers), and where anything was written patchlog.patch.id, gen_ai.usage.input_tokens and
//     .output_tokens if they were measured, and
//     gen_ai.compaction.merged (summaries were summarised), .level, .event_count and .events_before,
//     .events_after, .tokens_before, .tokens_after (estimated), .ratio, .calls,
//     .prompt_tokens, .answer_tokens (measured, of the summarizer) and .model; where the answer
//     was held against the events, also of one that was refused for what it invented,
//     gen_ai.compaction.lost and .invented, identifiers. One inside a run belongs to the run's trace; where the session could not be read, the name is
//     compact_events alone
//
// and metrics:
//
//   - patchlog.operation.duration: histogram, seconds; patchlog.operation (the span's name),
//     and error.type where it failed
//   - patchlog.records: counter, records that were acknowledged; patchlog.record.kind (event or
//     patch)
//   - patchlog.conflicts: counter, writes refused since another had been logged
//   - patchlog.visible_events: histogram, visible events of a session when it was got
//   - patchlog.compactions: counter, attempts to compact; gen_ai.compaction.outcome, both
//     triggers and error.type, as for the span
//   - patchlog.compaction.tokens_saved: counter, tokens, estimated, that summaries take less
//     than what they stand for
//   - patchlog.compaction.duration: histogram, seconds; attributes as for patchlog.compactions
//
// The values of error.type are not_found, exists, conflict, duplicate_id, invalid,
// out_of_range, event_not_found, orphaned_call, unknown_patch, too_large, corrupt,
// outcome_unknown, closed, vetoed, answer_refused, summarizer_panic, summarizer_busy, canceled,
// deadline_exceeded and _OTHER.
package adk

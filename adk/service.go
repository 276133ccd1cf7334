package adk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/google/uuid"
	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/platform"
	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/adk/internal/cache"
	"github.com/patchlog-dev/patchlog/adk/internal/convert"
	"github.com/patchlog-dev/patchlog/adk/internal/storage"
	"github.com/patchlog-dev/patchlog/adk/internal/wrap"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/patch/redact"
	"github.com/patchlog-dev/patchlog/recall"
	"github.com/patchlog-dev/patchlog/store"
)

// Options are the options of a [Service]. The zero value selects the defaults.
type Options struct {
	// Compaction configures when and how sessions are compacted. docs/ADK.md describes it. The zero value turns
	// compaction off. If apps need different configurations, create a service for each app. The services may share a
	// store.
	Compaction compaction.Config

	// Model writes the summaries if Compaction.Summarizer is nil. The usual choice is the root agent's model. The
	// service cannot find this model, because ADK has no function that returns it. If Model is nil too,
	// [compaction.Extractive] writes the summaries. [Options.Validate] rejects a Model if compaction is off.
	Model model.LLM

	// Prepare, Approve and Observe are the functions of the same names in [compaction.Options]. They may be called
	// concurrently, and a run may wait until they return. A veto or an error does not fail the run.
	//
	// Prepare and Approve must return within five minutes, and during a run within nine tenths of the remaining
	// CompactionTimeout. At this limit, the context of the function ends and the attempt to compact fails.
	//
	// The functions receive events of the log, which are immutable. [SessionEvent] converts such an event to ADK's
	// type.
	Prepare func(ctx context.Context, p compaction.PrepareRequest[store.Key]) (keep string, err error)
	Approve func(ctx context.Context, d compaction.ApproveRequest[store.Key]) error
	Observe func(context.Context, compaction.Attempt[store.Key])

	// CompactionTimeout limits the total time for which one invocation waits for compactions that write nothing. 0
	// means [DefaultCompactionTimeout]. If it is negative, sessions are compacted only in the background, not
	// during runs.
	CompactionTimeout time.Duration

	// MaxResultTokens limits the estimated tokens of a tool result in a prompt. The session shows a longer result in
	// a shortened form ([recall.Shorten]), which consists of the beginning, the end, and a handle. The log keeps the
	// whole result. The tools of [Service.RecallTools] read the whole result by its handle. 0 means
	// [DefaultMaxResultTokens] if compaction is on, and no limit if compaction is off. A negative value means no
	// limit. The smallest limit is [recall.MinResultTokens].
	MaxResultTokens int

	// Redact, if not nil, replaces secrets by placeholders in the results of [Service.RecallTools] and
	// [Service.Memory]. It is also the default of Compaction.Redact, which redacts the prompts of summarizers.
	// The state and the events of sessions are not redacted.
	Redact *redact.Redactor

	// Runs is the policy for a run that begins while another run of the session is in progress. With
	// [RefuseSecondRun] and [WaitForRun], processes that share a database coordinate by leases. With these policies,
	// an append also fails if another run has appended since the run's own previous append.
	//
	// [Service.Plugin] reports the end of each run. Without the plugin, a run counts as ended in three cases:
	//
	//   - Its agent has given its final response.
	//   - The runner's context has ended.
	//   - The run has appended no event for five to ten minutes.
	Runs RunPolicy

	// KeepInterruptedCalls disables the answers to open calls of interrupted invocations. By default, the service
	// answers these calls when a user's message begins a new invocation, because models reject prompts with
	// unanswered calls. The answer is "interrupted: no result was recorded".
	//
	// Each answer is a splice in the log, with [compaction.InterruptedKey] in its custom metadata. [Service.Revert]
	// undoes the answer, and a late response replaces it.
	//
	// The service never answers the following calls:
	//
	//   - Long-running calls.
	//   - Requests to the user, and the calls that these requests are about.
	//   - Calls of open tasks.
	//   - Calls of invocations that are known to be running.
	KeepInterruptedCalls bool

	// Logger receives warnings for operators. nil means [slog.Default].
	Logger *slog.Logger

	// Telemetry configures the spans and metrics that docs/ADK.md lists.
	Telemetry Telemetry

	cacheBytes int // memory limit for cached logs of a wrapped service; negative: Wrap caches no log
}

// DefaultMaxResultTokens is the default of [Options.MaxResultTokens] if compaction is on.
const DefaultMaxResultTokens = 8_000

// DefaultCompactionTimeout is the default of [Options.CompactionTimeout].
const DefaultCompactionTimeout = 10 * time.Second

// Validate checks the options. The error matches [patch.ErrInvalid] and names the invalid option.
func (o Options) Validate() error {
	if _, err := o.compactionConfig(); err != nil {
		return err
	}
	if o.Runs < ConcurrentRuns || o.Runs > WaitForRun {
		return &patch.FieldError{Field: "Options.Runs", Problem: fmt.Sprintf("%d is not a run policy; use ConcurrentRuns, RefuseSecondRun or WaitForRun", o.Runs)}
	}
	if n := o.MaxResultTokens; n > 0 && n < recall.MinResultTokens {
		return &patch.FieldError{Field: "Options.MaxResultTokens", Problem: fmt.Sprintf("%d is too small; use at least %d, 0 for the default, or a negative value for no limit", n, recall.MinResultTokens)}
	}
	return nil
}

// Service is a [session.Service] over a store, or over another session.Service (see [Wrap]). It is safe for
// concurrent use. Its errors wrap the errors of the store or of the other service, and name the session. If ADK's
// in-memory service has an error for the same case, the text of the error is the same.
type Service struct {
	store          storage.Storage
	logger         *slog.Logger
	decoder        *decoder
	telemetry      *telemetry
	autoCompaction *autoCompaction // nil: compaction is off

	redact            *redact.Redactor
	finder            *recall.Finder[store.Key]
	shorten           func(fold.View, patch.Record) (*patch.PatchEvent, error) // the Follow function of [store.AppendOptions]; nil: results are not limited
	recallUsage       recallUsage
	runs              *runs
	warnedInvalidUTF8 cache.Cache[turn, bool] // invocations for which a warning about invalid UTF-8 was logged

	keepInterruptedCalls bool
}

// NewService returns a service over a store. The caller closes the store after the last use of the service. If
// compaction is on, the caller calls [Service.Close] before it closes the store. The error matches [patch.ErrInvalid]
// if s is nil or an option is invalid. NewService also returns the error of a telemetry provider that cannot create
// an instrument.
func NewService(s *store.Store, opts Options) (*Service, error) {
	if s == nil {
		return nil, fmt.Errorf("%w: the store is nil; open a store with store.Open", patch.ErrInvalid)
	}
	return newService(storage.StoreAdapter{Store: s}, opts)
}

// Wrap returns a service over another session service, the base. Examples of a base are ADK's services in memory, on
// SQL and on Vertex AI. The base keeps the sessions and serves as their audit log. A call that logs patches adds one
// event without content to the base. ADK ignores this event. docs/ADK.md lists the guarantees.
//
// A custom base may ignore the filters of Get, because the service applies them. Its List may return sessions without
// state, because the service reads each listed session. The service never passes "temp:" keys or partial events to
// the base. examples/keyvalue contains a custom base.
//
// The caller closes the base after the last use of the service. If compaction is on, the caller calls [Service.Close]
// before it closes the base. The error matches [patch.ErrInvalid] if the base is nil or is itself a *Service. Other
// errors are as for [NewService].
func Wrap(base session.Service, opts Options) (*Service, error) {
	switch v := reflect.ValueOf(base); {
	case !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil():
		return nil, fmt.Errorf("%w: the session service to wrap is nil; pass a session.Service", patch.ErrInvalid)
	case v.Type() == reflect.TypeFor[*Service]():
		return nil, fmt.Errorf("%w: the session service to wrap is already an *adk.Service; use it without Wrap", patch.ErrInvalid)
	}
	return newService(wrap.New(base, cmp.Or(opts.Logger, slog.Default()), min(opts.cacheBytes, 0)), opts)
}

func newService(s storage.Storage, opts Options) (*Service, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	t, err := newTelemetry(opts.Telemetry)
	if err != nil {
		return nil, err
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	svc := &Service{
		store:     s,
		logger:    opts.Logger,
		decoder:   &decoder{logger: opts.Logger, decoded: cache.Cache[*patch.Event, *session.Event]{Limit: maxDecodedBytes}},
		telemetry: t,
		redact:    opts.Redact,

		keepInterruptedCalls: opts.KeepInterruptedCalls,
	}
	svc.finder = recall.NewFinder(s, min(opts.cacheBytes, 0))
	if wrapped, ok := s.(*wrap.Storage); ok {
		wrapped.OnDelete = svc.finder.Forget
	}
	svc.limitResults(opts.MaxResultTokens)
	cfg, err := opts.compactionConfig()
	if err != nil {
		return nil, err
	}
	svc.runs = newRuns(opts, cfg.Enabled, s)
	if !cfg.Enabled {
		return svc, nil
	}
	if svc.autoCompaction, err = newAutoCompaction(s, t, svc.runs, cfg, opts); err != nil {
		return nil, err
	}
	if opts.MaxResultTokens == 0 {
		svc.limitResults(DefaultMaxResultTokens)
	}
	return svc, nil
}

// limitResults makes sessions show results of more than maxTokens tokens in a shortened form. If maxTokens is
// not positive, limitResults does nothing.
func (s *Service) limitResults(maxTokens int) {
	if maxTokens > 0 {
		s.shorten = recall.Shortener(maxTokens, uuid.NewString, func(r patch.Record) string { return s.store.Handle(r.Seq, 0, r.Event) })
	}
}

// Close ends background compaction. It waits until all queued and running compactions are done. If ctx ends first,
// Close cancels the compactions and returns the error of ctx. After Close, the service still works, but without
// background compaction. Close does nothing if compaction is off. Close does not close the store.
func (s *Service) Close(ctx context.Context) error {
	if s.autoCompaction == nil {
		return nil
	}
	return s.autoCompaction.worker.Close(ctx)
}

// Create creates a session. If the request has no session id, Create generates one. Keys of the initial state with
// the prefix "app:" or "user:" go to the shared scopes of the app or the user. Keys with the prefix "temp:" are
// dropped. Values are converted as by [NewEvent]. The creation time comes from ADK's platform clock.
//
// Create fails with [store.ErrExists] if the session exists, with one exception. ADK's runner calls Get, and then
// Create if there is no session. Another runner may create the session between these two calls. Then Create returns
// the existing session, if [Options.Runs] is [RefuseSecondRun] or [WaitForRun] and the request has no state.
func (s *Service) Create(ctx context.Context, req *session.CreateRequest) (*session.CreateResponse, error) {
	if req == nil {
		return nil, errNoRequest
	}
	if req.AppName == "" || req.UserID == "" {
		return nil, withMessage(patch.ErrInvalid, "app_name and user_id are required, got app_name: %q, user_id: %q", req.AppName, req.UserID)
	}
	key := store.Key{App: req.AppName, User: req.UserID, Session: req.SessionID}
	request := *req // a copy, so that fields that newer ADK versions add are kept
	var repaired bool
	if request.State, repaired = convert.Plain(withoutTemp(req.State)); repaired {
		s.logger.Warn(convert.InvalidUTF8Warning, "session", key.String())
	}
	stored, err := s.store.Create(ctx, &request, platform.Now(ctx))
	if missed := s.runs.consumeMiss(key); errors.Is(err, store.ErrExists) && missed && len(req.State) == 0 {
		stored, err = s.store.Get(ctx, key, session.GetRequest{})
	}
	if err != nil {
		return nil, createError(err, key.Session)
	}
	return &session.CreateResponse{Session: s.open(stored)}, nil
}

// Get returns a session with its newest view. The request's filters (NumRecentEvents, After) select events and do not
// change the state. With a context from [WithHistory], the session shows its history. The error matches
// [store.ErrNotFound] if there is no such session.
func (s *Service) Get(ctx context.Context, req *session.GetRequest) (*session.GetResponse, error) {
	if req == nil {
		return nil, errNoRequest
	}
	key, err := requestKey(req.AppName, req.UserID, req.SessionID)
	if err != nil {
		return nil, err
	}
	handle, err := s.get(ctx, key, session.GetRequest{NumRecentEvents: req.NumRecentEvents, After: req.After})
	if err != nil {
		if errors.Is(err, store.ErrNotFound) {
			s.runs.recordMiss(key)
		}
		return nil, getError(err, req.SessionID)
	}
	if req.NumRecentEvents > 0 || !req.After.IsZero() {
		n := req.NumRecentEvents
		if n <= 0 {
			n = handle.stored.View.Len()
		}
		handle.selection = selectEvents(handle.stored.View, n, req.After)
	}
	if params, ok := ctx.Value(historyKey{}).(historyPageParams); ok {
		if handle.history, err = s.readHistory(ctx, params, handle, req); err != nil {
			return nil, getError(err, req.SessionID)
		}
	}
	return &session.GetResponse{Session: handle}, nil
}

// List returns the sessions of a user. If the request has no user id, it returns the sessions of all users of the
// app. The sessions have their state but no events, as with ADK's own services. List computes the newest view of each
// session, so it is slower than [Service.ListPage]. List leaves out damaged sessions and logs a warning for each. It
// returns an error if every session is damaged.
func (s *Service) List(ctx context.Context, req *session.ListRequest) (*session.ListResponse, error) {
	if req == nil {
		return nil, errNoRequest
	}
	if req.AppName == "" {
		return nil, withMessage(patch.ErrInvalid, "app_name is required, got app_name: %q", req.AppName)
	}
	out := &session.ListResponse{Sessions: []session.Session{}}
	var damageErr error
	for info, err := range s.store.List(ctx, store.ListOptions{App: req.AppName, User: req.UserID}) {
		var handle *Session
		if err == nil {
			handle, err = s.get(ctx, info.Key, session.GetRequest{})
		}
		switch {
		case errors.Is(err, store.ErrNotFound): // the session was deleted while List was running
			continue
		case errors.Is(err, store.ErrCorrupt):
			damageErr = err
			s.logger.Warn("patchlog: a listing leaves out a damaged session", "session", info.Key.String(), "error", err)
			continue
		case err != nil:
			return nil, fmt.Errorf("list sessions: %w", err)
		}
		handle.selection = selectEvents(handle.stored.View, 0, time.Time{})
		out.Sessions = append(out.Sessions, handle)
	}
	if damageErr != nil && len(out.Sessions) == 0 {
		return nil, fmt.Errorf("list sessions: %w", damageErr)
	}
	return out, nil
}

// Delete removes a session and its whole log. The shared scopes of the app and the user remain. For a missing
// session, Delete returns an error only if ADK's in-memory service does.
func (s *Service) Delete(ctx context.Context, req *session.DeleteRequest) error {
	if req == nil {
		return errNoRequest
	}
	key, err := requestKey(req.AppName, req.UserID, req.SessionID)
	if err != nil {
		return err
	}
	switch err := s.store.Delete(ctx, key); {
	case errors.Is(err, store.ErrNotFound) && missingSession.delete() != nil:
		return getError(err, key.Session)
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return fmt.Errorf("delete session: %w", err)
	}
	s.finder.Forget(key)
	if s.autoCompaction != nil {
		s.autoCompaction.last.Remove(key)
	}
	return nil
}

var errNoRequest = fmt.Errorf("%w: the request is nil", patch.ErrInvalid)

func (s *Service) get(ctx context.Context, key store.Key, filter session.GetRequest) (handle *Session, err error) {
	ctx, op := s.telemetry.start(ctx, opFold, key)
	defer func() { op.end(ctx, err) }()
	stored, err := s.store.Get(ctx, key, filter)
	if err != nil {
		return nil, err
	}
	op.recordView(ctx, stored.View)
	return s.open(stored), nil
}

func (s *Service) open(stored storage.Session) *Session {
	return &Session{key: stored.Key, returned: returnedEvents{decoder: s.decoder, byEvent: map[*patch.Event]*session.Event{}}, stored: stored, overlay: map[string]any{}, typed: map[string]typedValue{}}
}

var _ session.Service = (*Service)(nil)

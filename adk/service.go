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

// Options of a service. The zero value means the defaults.
type Options struct {
	// Compaction says when and how sessions are compacted; see docs/ADK.md. In its zero value compaction is off. Apps
	// with different configurations need different services, which may share one store.
	Compaction compaction.Config

	// Model writes the summaries if Compaction.Summarizer is nil. Set it to the root agent's model, for example, which
	// ADK does not expose. nil means [compaction.Extractive]. [Options.Validate] refuses a Model if compaction is off.
	Model model.LLM

	// Prepare, Approve and Observe are those of [compaction.Options]. They may be called from several goroutines at
	// once, while a run waits. ctx ends after five minutes, or after nine tenths of CompactionTimeout; they should
	// return soon after that. A veto or failure does not fail a run. The functions get events of the log, which are
	// immutable; [SessionEvent] converts them to ADK's type.
	Prepare func(ctx context.Context, p compaction.PrepareRequest[store.Key]) (keep string, err error)
	Approve func(ctx context.Context, d compaction.ApproveRequest[store.Key]) error
	Observe func(context.Context, compaction.Attempt[store.Key])

	// CompactionTimeout is how long an invocation may wait, in total, for compactions of its session that write
	// nothing; 0 means [DefaultCompactionTimeout]. With a negative value, sessions are compacted only in the
	// background.
	CompactionTimeout time.Duration

	// MaxResultTokens is how many estimated tokens a tool's result may take in a prompt. The session shows a longer
	// result shortened ([recall.Shorten]): its beginning, its end, and a handle with which the tools of
	// [Service.RecallTools] read all of it. The log keeps the whole result. 0 means [DefaultMaxResultTokens] if
	// compaction is on, and no limit otherwise; a negative value means no limit. The minimum is
	// [recall.MinResultTokens].
	MaxResultTokens int

	// Redact, if not nil, replaces secrets by placeholders in the results of [Service.RecallTools] and
	// [Service.Memory]. It also does so in requests to summarizers, unless Compaction.Redact is set. Sessions, their
	// state and their events keep the secrets.
	Redact *redact.Redactor

	// Runs says what happens if a run of a session begins while another run is in progress. Processes that share a
	// storage coordinate by leases, and the log refuses an append after another run's events. [Service.Plugin] reports
	// the end of a run. Without the plugin, a run counts as ended after its agent's final response, at the end of the
	// runner's context, or ten minutes after its last event.
	Runs RunPolicy

	// KeepInterruptedCalls leaves calls of interrupted runs without a response. By default, when the user's message
	// begins an invocation, the service answers the open calls of earlier invocations with "interrupted: no result was
	// recorded", since models refuse prompts with unanswered calls. Each answer is a logged splice with
	// [compaction.InterruptedKey] in its custom metadata. [Service.Revert] undoes it, and a late response replaces it.
	// Some calls stay open in any case: long-running calls, requests to the user, calls that a request to the user is
	// about, open tasks, and calls of runs that are known to go on.
	KeepInterruptedCalls bool

	// Logger gets warnings for operators. nil means [slog.Default].
	Logger *slog.Logger

	// Telemetry gets the spans and metrics that docs/ADK.md lists.
	Telemetry Telemetry

	cacheBytes int // below 0, Wrap caches no log
}

// DefaultMaxResultTokens is the default of [Options.MaxResultTokens] where sessions are compacted.
const DefaultMaxResultTokens = 8_000

// DefaultCompactionTimeout is the default of [Options.CompactionTimeout].
const DefaultCompactionTimeout = 10 * time.Second

// Validate reports whether the options make sense. The error matches [patch.ErrInvalid]
// and names the option at fault.
func (o Options) Validate() error {
	if _, err := o.config(); err != nil {
		return err
	}
	if o.Runs < ConcurrentRuns || o.Runs > WaitForRun {
		return &patch.FieldError{Field: "Options.Runs", Problem: fmt.Sprintf("%d is no policy; use one of ConcurrentRuns, RefuseSecondRun and WaitForRun", o.Runs)}
	}
	if n := o.MaxResultTokens; n > 0 && n < recall.MinResultTokens {
		return &patch.FieldError{Field: "Options.MaxResultTokens", Problem: fmt.Sprintf("%d is below %d", n, recall.MinResultTokens)}
	}
	return nil
}

// Service is a [session.Service] over a store, or over another session.Service (see [Wrap]). It is safe for use by any
// number of goroutines. Its errors wrap the errors of the store or of the other service, and name the session. Errors
// that ADK's in-memory service also has use its wording.
type Service struct {
	store      storage.Storage
	logger     *slog.Logger
	decoder    *decoder
	telemetry  *telemetry
	compacting *compacting // nil: compaction is off

	redact      *redact.Redactor
	finder      *recall.Finder[store.Key]
	shorten     func(fold.View, patch.Record) (*patch.PatchEvent, error) // for [store.AppendOptions]; nil: no limit
	recallSpent recallSpent
	runs        *runs
	mended      cache.Cache[turn, bool] // invocations of which a text was mended, with a warning

	keepInterrupted bool
}

// NewService returns a service over a store, which the caller closes after the service's last use and, where compaction
// is on, after [Service.Close]. The error matches [patch.ErrInvalid] if s is nil or the options are invalid; or it is
// the error of a telemetry provider that cannot create an instrument.
func NewService(s *store.Store, opts Options) (*Service, error) {
	if s == nil {
		return nil, fmt.Errorf("%w: the store is nil", patch.ErrInvalid)
	}
	return newService(storage.InStore{Store: s}, opts)
}

// Wrap returns a service over another session service, the base, such as ADK's in memory, on SQL or on Vertex AI. The
// base keeps the sessions and is the audit log. The patches of a call are stored as one event without content, which
// ADK ignores. docs/ADK.md lists the guarantees.
//
// A custom base may ignore the filters of Get, and its List may return only names: the service applies the filters, and
// reads the listed sessions. The service passes neither temp: keys nor partial events to the base. examples/keyvalue
// has a custom base.
//
// The caller closes the base, after the service's last use and, where compaction is on, after [Service.Close]. The
// error matches [patch.ErrInvalid] if base is nil or itself a *Service; other errors are as for [NewService].
func Wrap(base session.Service, opts Options) (*Service, error) {
	switch v := reflect.ValueOf(base); {
	case !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil():
		return nil, fmt.Errorf("%w: the session service to wrap is nil", patch.ErrInvalid)
	case v.Type() == reflect.TypeFor[*Service]():
		return nil, fmt.Errorf("%w: the session service to wrap is one of this package's already", patch.ErrInvalid)
	}
	return newService(wrap.New(base, cmp.Or(opts.Logger, slog.Default()), min(opts.cacheBytes, 0)), opts)
}

// newService returns a service over a storage.
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

		keepInterrupted: opts.KeepInterruptedCalls,
	}
	svc.finder = recall.NewFinder(s, min(opts.cacheBytes, 0))
	if b, ok := s.(*wrap.Storage); ok {
		b.Forgot = svc.finder.Forget
	}
	svc.shortenAbove(opts.MaxResultTokens)
	cfg, err := opts.config()
	if err != nil {
		return nil, err
	}
	svc.runs = newRuns(opts, cfg.Enabled, s)
	if !cfg.Enabled {
		return svc, nil
	}
	if svc.compacting, err = newCompacting(s, t, svc.runs, cfg, opts); err != nil {
		return nil, err
	}
	if opts.MaxResultTokens == 0 {
		svc.shortenAbove(DefaultMaxResultTokens)
	}
	return svc, nil
}

// shortenAbove has results of more than maxTokens shown shortened, if that is above 0.
func (s *Service) shortenAbove(maxTokens int) {
	if maxTokens > 0 {
		s.shorten = recall.Shortener(maxTokens, uuid.NewString, func(r patch.Record) string { return s.store.Handle(r.Seq, 0, r.Event) })
	}
}

// Close ends background compaction: it accepts no more sessions, and waits until all queued and running compactions are
// done. If ctx ends first, Close cancels them and returns ctx's error. The service can be used after Close, without
// background compaction. Close does nothing if compaction is off. The caller closes the store after Close.
func (s *Service) Close(ctx context.Context) error {
	if s.compacting == nil {
		return nil
	}
	return s.compacting.worker.Close(ctx)
}

// Create creates a session. A request without an id gets a new id. Keys of the initial state with prefix app: or user:
// go to the shared scopes; keys with prefix temp: are dropped. Values are converted as by [NewEvent]. The time of
// creation is that of ADK's platform clock. Create fails with [store.ErrExists] if the session exists, with one
// exception. ADK's runner calls Get and, if there is no session, Create. If [Options.Runs] lets only one run append at
// a time, such a Create without a state returns the session that another call created between these two calls.
func (s *Service) Create(ctx context.Context, req *session.CreateRequest) (*session.CreateResponse, error) {
	if req == nil {
		return nil, errNoRequest
	}
	if req.AppName == "" || req.UserID == "" {
		return nil, withMessage(patch.ErrInvalid, "app_name and user_id are required, got app_name: %q, user_id: %q", req.AppName, req.UserID)
	}
	key := store.Key{App: req.AppName, User: req.UserID, Session: req.SessionID}
	own := *req // with what a newer ADK asks besides
	var mended bool
	if own.State, mended = convert.Plain(withoutTemp(req.State)); mended {
		s.logger.Warn(convert.BadText, "session", key.String())
	}
	stored, err := s.store.Create(ctx, &own, platform.Now(ctx))
	if missed := s.runs.takeMiss(key); errors.Is(err, store.ErrExists) && missed && len(req.State) == 0 {
		stored, err = s.store.Get(ctx, key, session.GetRequest{})
	}
	if err != nil {
		return nil, createError(err, key.Session)
	}
	return &session.CreateResponse{Session: s.open(stored)}, nil
}

// Get returns a session with its newest view. A filter in the request (NumRecentEvents, After) selects events and does
// not change the state. With a context of [WithHistory] the session shows its history. It fails with
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
			s.runs.miss(key)
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
	if mark, ok := ctx.Value(historyKey{}).(historyMark); ok {
		if handle.history, err = s.readHistory(ctx, mark, handle, req); err != nil {
			return nil, getError(err, req.SessionID)
		}
	}
	return &session.GetResponse{Session: handle}, nil
}

// List returns the sessions of an app, of one user or, without a user id, of all users. They have their state and, as
// with ADK's own services, no events. List makes the newest view of each session. A damaged session is left out, with a
// warning to the logger. If only damaged sessions were found, List returns an error.
func (s *Service) List(ctx context.Context, req *session.ListRequest) (*session.ListResponse, error) {
	if req == nil {
		return nil, errNoRequest
	}
	if req.AppName == "" {
		return nil, withMessage(patch.ErrInvalid, "app_name is required, got app_name: %q", req.AppName)
	}
	out := &session.ListResponse{Sessions: []session.Session{}}
	var damage error
	for info, err := range s.store.List(ctx, store.ListOptions{App: req.AppName, User: req.UserID}) {
		var handle *Session
		if err == nil {
			handle, err = s.get(ctx, info.Key, session.GetRequest{})
		}
		switch {
		case errors.Is(err, store.ErrNotFound): // deleted meanwhile
			continue
		case errors.Is(err, store.ErrCorrupt):
			damage = err
			s.logger.Warn("patchlog: a damaged session is left out of a listing", "session", info.Key.String(), "error", err)
			continue
		case err != nil:
			return nil, fmt.Errorf("list sessions: %w", err)
		}
		handle.selection = selectEvents(handle.stored.View, 0, time.Time{})
		out.Sessions = append(out.Sessions, handle)
	}
	if damage != nil && len(out.Sessions) == 0 {
		return nil, fmt.Errorf("list sessions: %w", damage)
	}
	return out, nil
}

// Delete removes a session with its whole log. The shared scopes stay as they are. A missing session is an error only
// if it is an error for ADK's in-memory service.
func (s *Service) Delete(ctx context.Context, req *session.DeleteRequest) error {
	if req == nil {
		return errNoRequest
	}
	key, err := requestKey(req.AppName, req.UserID, req.SessionID)
	if err != nil {
		return err
	}
	switch err := s.store.Delete(ctx, key); {
	case errors.Is(err, store.ErrNotFound) && missing.delete() != nil:
		return getError(err, key.Session)
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return fmt.Errorf("delete session: %w", err)
	}
	s.finder.Forget(key)
	if s.compacting != nil {
		s.compacting.last.Remove(key)
	}
	return nil
}

var errNoRequest = fmt.Errorf("%w: the request is nil", patch.ErrInvalid)

// get reads a session.
func (s *Service) get(ctx context.Context, key store.Key, filter session.GetRequest) (handle *Session, err error) {
	ctx, op := s.telemetry.start(ctx, opFold, key)
	defer func() { op.end(ctx, err) }()
	stored, err := s.store.Get(ctx, key, filter)
	if err != nil {
		return nil, err
	}
	op.folded(ctx, stored.View)
	return s.open(stored), nil
}

// open makes a session of one that was read.
func (s *Service) open(stored storage.Session) *Session {
	return &Session{key: stored.Key, given: ownEvents{decoder: s.decoder, given: map[*patch.Event]*session.Event{}}, stored: stored, overlay: map[string]any{}, typed: map[string]typedValue{}}
}

var _ session.Service = (*Service)(nil)

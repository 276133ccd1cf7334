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
	// Compaction says when sessions are compacted, and how; docs/ADK.md explains it. In the zero value,
	// compaction is off. Apps with configurations of their own have services of their own, over one store.
	Compaction compaction.Config

	// Model makes the summaries if Compaction names no Summarizer: give it the model of the root agent,
	// which ADK does not expose. nil means [compaction.Extractive]. A Model without compaction is an error.
	Model model.LLM

	// Prepare, Approve and Observe are those of [compaction.Options]. They may be called from several goroutines
	// at once, while a run waits, and should return soon after ctx is done: after five minutes, or when nine tenths of
	// CompactionTimeout are over. No veto and no failure reaches a run. They get the log's events, which do not change;
	// [SessionEvent] converts one to ADK's form.
	Prepare func(ctx context.Context, p compaction.PrepareRequest[store.Key]) (keep string, err error)
	Approve func(ctx context.Context, d compaction.ApproveRequest[store.Key]) error
	Observe func(context.Context, compaction.Attempt[store.Key])

	// CompactionTimeout is how long an invocation may wait in all for compactions of its session that write nothing;
	// 0 means [DefaultCompactionTimeout]. Below 0, sessions are compacted only in the background.
	CompactionTimeout time.Duration

	// MaxResultTokens is how many tokens, as estimated, the result of a tool may take in a
	// prompt. Of a longer one the session shows the beginning and the end, and a handle by which
	// [Service.RecallTools] read the whole; the log has it as it was ([recall.Shorten]). 0 means
	// [DefaultMaxResultTokens] where sessions are compacted, and else no limit; below 0 there is
	// none. The least is [recall.MinResultTokens].
	MaxResultTokens int

	// Redact, if not nil, replaces secrets by placeholders in what summarizers are given, unless their
	// configuration has a redactor of its own, and in what [Service.RecallTools] and
	// [Service.Memory] return. Sessions, their state and events are as they were logged.
	Redact *redact.Redactor

	// Runs says what happens if a run of a session begins while another one is under way. Between processes, leases
	// decide, and the log refuses an append after another run's events. [Service.Plugin] reports the end of a run. Without
	// it, a run ends with its agent's final response, with the runner's context, or ten minutes after its last event.
	Runs RunPolicy

	// KeepInterruptedCalls leaves calls of interrupted runs without an answer. By default, when the user's message begins
	// an invocation, the calls of earlier ones that have no response get one beside them that says so, by a logged
	// splice: models refuse prompts with calls that nothing answers. It has [compaction.InterruptedKey] in its custom metadata, can
	// be taken back by [Service.Revert], and gives place to a late answer. Calls that are long-running, that ask the
	// user or that the user is asked about, open tasks, and runs that are known to go on are left as they are.
	KeepInterruptedCalls bool

	// Logger gets warnings for operators. nil means [slog.Default].
	Logger *slog.Logger

	// Telemetry gets the spans and metrics of docs/ADK.md.
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

// Service is a session.Service over a store, or over another one (see [Wrap]). It is safe
// for use by any number of goroutines. Its errors wrap the store's, or the other service's,
// and say which session they are about; where ADK's service in memory has words for one,
// they have these.
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

// NewService returns a service over a store, which the caller closes after the service's
// last use and, where compaction is on, after [Service.Close]. The error matches
// [patch.ErrInvalid] if there is no store, or is that of [Options.Validate] or of a
// provider that cannot make an instrument.
func NewService(s *store.Store, opts Options) (*Service, error) {
	if s == nil {
		return nil, fmt.Errorf("%w: the store is nil", patch.ErrInvalid)
	}
	return newService(storage.InStore{Store: s}, opts)
}

// Wrap returns a service over another session service, the base, such as ADK's in memory,
// on SQL or on Vertex AI. The base is the audit log: sessions stay where they are, and the
// patches of a call are one more event, without content, which ADK ignores. docs/ADK.md says
// what that promises.
//
// A custom base may ignore the filters of Get, and its List may return names alone: the service applies the filters,
// and reads the listed sessions. The base gets neither temp: keys nor partial events. examples/keyvalue is an example.
//
// The caller closes the base, after the service's last use and, where compaction is on, after
// [Service.Close]. The error matches [patch.ErrInvalid] if there is no base, or if it is a
// [Service], or is that of [NewService].
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

// Close ends automatic compaction: it takes no more sessions, and waits until those that
// wait or are being compacted are done. When ctx ends first, they are left as they are,
// and the error is ctx's. The service can be used afterwards; only the background is
// quiet. It does nothing where compaction is off. The store is the caller's to close,
// afterwards.
func (s *Service) Close(ctx context.Context) error {
	if s.compacting == nil {
		return nil
	}
	return s.compacting.worker.Close(ctx)
}

// Create creates a session. Without an id it gets one. Keys of the initial state with
// prefix app: or user: go to the shared scopes, those with prefix temp: are dropped;
// values and texts are as for [NewEvent]. It is created at the time of ADK's platform clock. It fails
// with [store.ErrExists] if the session is there. Where [Options.Runs] lets one run append at a time, a
// Create without a state after a Get that found nothing returns the session that another call has
// created meanwhile: ADK's runner gets a session, then creates it.
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

// Get returns a session with its newest view. A filter in the request (the last events,
// events not before a time) selects events and leaves the state as it is. With a context of
// [WithHistory] the session shows its history. It fails with
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

// List returns the sessions of an app, of one user or, without one, of all. They have
// their state and, as with ADK's own services, no events. It folds each of them. One that
// is damaged is left out, with a warning to the logger: the others are still to be had. If
// there are no others, its error is returned.
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

// Delete removes a session with its whole log. The shared scopes stay as they are. That
// there is no such session is an error if it is one for ADK's service in memory.
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

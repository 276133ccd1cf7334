package compaction_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/internal/records"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

var errModel = errors.New("model is away")

// badSummarizer is a summarizer that fails, with the error that the compactor must return.
type badSummarizer struct {
	name      string
	summarize compaction.SummarizerFunc
	want      error  // error to match, or nil for none
	says      string // part of the error text
}

// answers returns a summarizer that always returns text.
func answers(text string) compaction.SummarizerFunc {
	return func(context.Context, compaction.Request) (compaction.Response, error) { return says(text), nil }
}

// refuses returns a summarizer that refuses its model's answer with a reason.
func refuses(why string) compaction.SummarizerFunc {
	return func(context.Context, compaction.Request) (compaction.Response, error) {
		return compaction.Response{Model: "m"}, fmt.Errorf("%w: %s", compaction.ErrRefusedAnswer, why)
	}
}

func stopped(reason compaction.FinishReason) compaction.SummarizerFunc {
	return func(context.Context, compaction.Request) (compaction.Response, error) {
		r := says("told")
		r.FinishReason = reason
		return r, nil
	}
}

func stoppedShort(context.Context, compaction.Request) (compaction.Response, error) {
	return compaction.Response{FinishReason: "MAX_TOKENS"}, nil
}

// badSummarizers must be called in a synctest bubble, because one of the summarizers sleeps for an hour.
func badSummarizers() []badSummarizer {
	refused := compaction.ErrRefusedAnswer
	return []badSummarizer{
		{"error", func(context.Context, compaction.Request) (compaction.Response, error) {
			return says("told"), errModel
		}, errModel, "model is away"},
		{"panic", func(context.Context, compaction.Request) (compaction.Response, error) {
			panic("out of cheese")
		}, compaction.ErrSummarizerPanic, "out of cheese"},
		{"runtime error", func(_ context.Context, r compaction.Request) (compaction.Response, error) {
			return says(r.Events[len(r.Events)].ID()), nil
		}, compaction.ErrSummarizerPanic, "index out of range"},
		{"hangs until its context ends", func(ctx context.Context, _ compaction.Request) (compaction.Response, error) {
			<-ctx.Done()
			return compaction.Response{}, ctx.Err()
		}, context.DeadlineExceeded, ""},
		{"hangs whatever its context", func(context.Context, compaction.Request) (compaction.Response, error) {
			time.Sleep(time.Hour)
			return says("told"), nil
		}, context.DeadlineExceeded, "abandoned"},
		{"declines", answers(""), nil, ""},
		{"stops short of any text", stoppedShort, refused, "MAX_TOKENS"},
		{"white space", func(context.Context, compaction.Request) (compaction.Response, error) { return says(" \n"), nil }, refused, "empty"},
		{"an answer that is refused", refuses("it calls a function"), refused, "it calls a function"},
		{"a zero-width space", answers("\u200b"), refused, "no letter"},
		{"NUL and ESC", answers("\x00\x1b"), refused, "empty"},
		{"fillers of Hangul", answers("\u3164\u115f\uffa0"), refused, "no letter"},
		{"a soft hyphen", answers("\u00ad"), refused, "no letter"},
		{"no Unicode", answers("\xff\xfe"), refused, "no letter"},
		{"an ellipsis", answers("…\n--"), refused, "no letter"},
		{"cut off", stopped("MAX_TOKENS"), refused, "MAX_TOKENS"},
		{"blocked", stopped("SAFETY"), refused, "SAFETY"},
		{"stopped for a reason that is not known", stopped("SOMETHING_NEW"), refused, "SOMETHING_NEW"},
		{"longer than a summary may be", func(_ context.Context, r compaction.Request) (compaction.Response, error) {
			return says(strings.Repeat("abcd", r.MaxTokens+1)), nil
		}, refused, "the maximum is"},
		{"longer than three quarters of what it replaces", func(_ context.Context, r compaction.Request) (compaction.Response, error) {
			tokens := 0
			for _, e := range r.Events {
				tokens += e.EstimatedTokens()
			}
			return says(strings.Repeat("abcd", tokens*3/4+1)), nil
		}, refused, "the maximum is"},
	}
}

// sessionText returns the complete content of a session as text.
func sessionText(t testing.TB, s *session) string {
	var b bytes.Buffer
	testlog.NoError(t, s.store.Export(t.Context(), key, &b, store.ExportOptions{}))
	return b.String() + s.visible() + s.state()
}

// Whatever a summarizer does wrong, the session does not change and one line is logged. The number of calls to the
// summarizer stays small while the session grows.
func TestFailingSummarizers(t *testing.T) {
	for _, m := range badSummarizers() {
		run := func(t *testing.T) {
			var calls atomic.Int32
			var lines bytes.Buffer
			var seen []compaction.Attempt[store.Key]
			s := newSession(t, "u1*60 d1 a1*60 u2*60 a2*60")
			c := s.with(compaction.Config{
				Enabled: true, CompactionInterval: 2,
				Summarizer: compaction.SummarizerFunc(func(ctx context.Context, r compaction.Request) (compaction.Response, error) {
					calls.Add(1)
					return m.summarize(ctx, r)
				}),
			}, compaction.Options[store.Key]{
				Logger:  slog.New(slog.NewTextHandler(&lines, nil)),
				Observe: func(_ context.Context, a compaction.Attempt[store.Key]) { seen = append(seen, a) },
			})
			before := sessionText(t, s)
			done, err := c.MaybeCompact(t.Context(), key)
			var failure *compaction.SummarizerError
			if done != nil || !errors.Is(err, m.want) || m.want != nil && (!errors.As(err, &failure) || failure.Count != 5 || !strings.Contains(err.Error(), m.says)) {
				t.Errorf("MaybeCompact: %v, %v", done, err)
			}
			if after := sessionText(t, s); after != before {
				t.Errorf("the session was\n%s\nand is\n%s", before, after)
			}
			failed, outcome := uint64(1), compaction.Failed
			if m.want == nil {
				failed, outcome = 0, compaction.Declined
			}
			if n := strings.Count(lines.String(), "\n"); n != int(failed) {
				t.Errorf("%d lines are logged:\n%s", n, lines.String())
			}
			if got := c.Stats(); got[compaction.Failed] != failed || got[compaction.Declined] != 1-failed || got[compaction.Wrote] != 0 {
				t.Errorf("counted is %+v", got)
			}
			if len(seen) != 1 || seen[0].Outcome != outcome || seen[0].Key != key || (seen[0].Err == nil) != (m.want == nil) {
				t.Errorf("observed is %+v", seen)
			}
			if calls.Load() != 1 {
				t.Errorf("%d calls, want 1", calls.Load())
			}

			for i := range 200 {
				if i%2 == 0 {
					s.append(fmt.Sprintf("u%d*150", i))
				}
				before := s.view().Seq()
				if done, _ := c.MaybeCompact(t.Context(), key); done != nil || s.view().Seq() != before {
					t.Fatalf("after %d more events something was written: %v", i, done)
				}
			}
			// The summarizer is called again after 1, 2, 4 … 64 more records. So 100 more records cause six more
			// calls.
			if n := calls.Load(); n < 3 || n > 8 {
				t.Errorf("%d calls for 100 more events", n)
			}
			time.Sleep(time.Hour) // time for the calls that are still running to return
		}
		t.Run(m.name, func(t *testing.T) { synctest.Test(t, run) })
	}
}

// The compactor skips a session that another compactor claims. It releases its own claim when the pass ends, even
// with an error.
func TestClaim(t *testing.T) {
	for _, c := range []struct {
		name            string
		free            bool
		err             error
		calls, released int
	}{{"not free", false, nil, 0, 0}, {"free", true, nil, 1, 1}, {"free, and fails", true, errModel, 1, 1}} {
		t.Run(c.name, func(t *testing.T) {
			s := newSession(t, "u1*60 d1 a1*60 u2*60 a2*60")
			calls, released := 0, 0
			compactor := s.with(compaction.Config{
				Enabled: true, CompactionInterval: 2,
				Summarizer: compaction.SummarizerFunc(func(context.Context, compaction.Request) (compaction.Response, error) {
					if calls++; released > 0 {
						t.Error("the session was let go before the summary was made")
					}
					return says("told"), c.err
				}),
			}, compaction.Options[store.Key]{
				Logger: slog.New(slog.DiscardHandler),
				Claim: func(_ context.Context, k store.Key, v fold.View) (func(), bool) {
					if k != key || v.Len() != s.view().Len() {
						t.Errorf("asked about %v with %d events", k, v.Len())
					}
					return func() { released++ }, c.free
				},
			})
			done, err := compactor.MaybeCompact(t.Context(), key)
			if !errors.Is(err, c.err) || len(done) > 0 != (c.free && c.err == nil) {
				t.Errorf("MaybeCompact: %v, %v", done, err)
			}
			if calls != c.calls || released != c.released {
				t.Errorf("%d calls and let go %d times, want %d and %d", calls, released, c.calls, c.released)
			}
		})
	}
}

// A summarizer may modify its request without any effect on the session.
func TestSummarizerChangesItsInput(t *testing.T) {
	s := newSession(t, "u1*20 c1(x)*20 r1(x)*20 d1 u2*20 a2*20 u3*20 a3*20")
	vandal := compaction.SummarizerFunc(func(_ context.Context, r compaction.Request) (compaction.Response, error) {
		for _, events := range [][]*patch.Event{r.Events, r.Before} {
			for i, e := range events {
				for _, field := range []string{"content", "actions", "id"} {
					text, _ := e.Field(field)
					for j := range text {
						text[j] = '!'
					}
				}
				for _, p := range e.Content().Parts() {
					clear(records.JSON(p.JSON))
					clear(records.JSON(p.Value))
				}
				clear(e.StateDelta())
				clear(e.CustomMetadata())
				events[i] = nil
			}
		}
		return compaction.Response{}, errModel
	})
	before := sessionText(t, s)
	c := s.compactor(every(2, 1, vandal))
	if _, err := c.MaybeCompact(t.Context(), key); !errors.Is(err, errModel) {
		t.Fatal(err)
	}
	if after := sessionText(t, s); after != before {
		t.Errorf("the session was\n%s\nand is\n%s", before, after)
	}
	s.compact(every(2, 1, &scripted{}))
	for i := 4; i < 8; i++ {
		s.append(fmt.Sprintf("u%d*20 a%d*20", i, i))
	}
	before = sessionText(t, s)
	if _, err := s.compactor(every(2, 2, vandal)).MaybeCompact(t.Context(), key); !errors.Is(err, errModel) {
		t.Fatal(err)
	}
	if after := sessionText(t, s); after != before {
		t.Errorf("with events shown again, the session was\n%s\nand is\n%s", before, after)
	}
}

// The compactor repairs invalid UTF-8 in an answer and removes control characters.
func TestAnswerIsRepaired(t *testing.T) {
	s := newSession(t, "u1*50 a1*50 u2*50 a2*50")
	s.compact(every(2, 0, answers(" to\xffld\x00\nmore\x1b ")))
	var c struct{ Parts []struct{ Text string } }
	if err := s.view().At(0).Decode("content", &c); err != nil || len(c.Parts) != 1 || c.Parts[0].Text != "to\uFFFDld\nmore" {
		t.Errorf("the summary is %q, %v", c.Parts[0].Text, err)
	}
}

// While four calls that the compactor gave up on are still running, it starts no new ones. After they have returned,
// it starts calls again.
func TestSummarizerBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var calls atomic.Int32
		cfg := every(2, 0, compaction.SummarizerFunc(func(context.Context, compaction.Request) (compaction.Response, error) {
			if calls.Add(1) <= 4 {
				<-release
			}
			return says("told"), nil
		}))
		cfg.Limits().CallTimeout = time.Millisecond
		s := newSession(t, "u1*20 a1*20 u2*20 a2*20")
		c := s.compactor(cfg)
		busy := 0
		for range 200 {
			s.append("a2")
			if _, err := c.MaybeCompact(t.Context(), key); errors.Is(err, compaction.ErrSummarizerBusy) {
				busy++
			}
		}
		if calls.Load() != 4 || busy == 0 {
			t.Errorf("%d calls, %d times busy; want 4 calls and then busy", calls.Load(), busy)
		}
		close(release)
		synctest.Wait()
		for range 64 {
			s.append("a2")
			s.run(c)
		}
		if c.Stats()[compaction.Wrote] == 0 {
			t.Error("it does not go on after the calls have returned")
		}
	})
}

// If the summarizer does not return, the fallback is called after the timeout.
func TestFallbackAfterTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		t.Cleanup(func() { close(release) })
		fallback := &scripted{}
		cfg := every(2, 0, compaction.SummarizerFunc(func(context.Context, compaction.Request) (compaction.Response, error) {
			<-release
			return compaction.Response{}, nil
		}))
		cfg.Limits().CallTimeout, cfg.TokenThreshold = time.Millisecond, 400
		cfg.SetFallback(fallback)
		s := newSession(t, "")
		c := s.compactor(cfg)
		for i := range 100 {
			s.append(fmt.Sprintf("u%d*20 a%d*20", i, i))
			_, _ = c.MaybeCompact(t.Context(), key)
		}
		if n := s.view().Len(); n > 60 || fallback.calls() < 3 {
			t.Errorf("%d events are visible, the fallback was asked %d times", n, fallback.calls())
		}
	})
}

// A recreated session does not inherit the backoff of the deleted session.
func TestBackoffEndsWithTheSession(t *testing.T) {
	s := newSession(t, strings.Repeat("u1*20 a1*20 u2*20 a2*20 ", 50))
	sum := &scripted{reply: func(compaction.Request) (compaction.Response, error) { return compaction.Response{}, errModel }}
	c := s.compactor(every(2, 0, sum))
	if _, err := c.MaybeCompact(t.Context(), key); !errors.Is(err, errModel) {
		t.Fatal(err)
	}
	testlog.NoError(t, s.store.Delete(t.Context(), key))
	testlog.Must(s.store.Create(t.Context(), key, nil, store.CreateOptions{}))(t)
	sum.reply = nil
	s.append("u1*20 a1*20 u2*20 a2*20")
	if done, err := c.MaybeCompact(t.Context(), key); len(done) != 1 || err != nil {
		t.Errorf("%v, %v", done, err)
	}
}

func TestDeadlineErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		s := newSession(t, "u1*50 a1*50")
		c := s.compactor(every(1, 0, compaction.SummarizerFunc(func(context.Context, compaction.Request) (compaction.Response, error) {
			<-release
			return compaction.Response{}, nil
		})))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := c.MaybeCompact(ctx, key)
		if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "5m0s") || !strings.Contains(err.Error(), "caller") {
			t.Errorf("the error is %v", err)
		}
	})
}

// After each consecutive failure, the number of records before the next attempt doubles, up to 64.
func TestBackoffDoublesUpTo64(t *testing.T) {
	s := newSession(t, "u1*200 a1*200 u2*200 a2*200")
	var tried []uint64
	c := s.compactor(every(2, 0, compaction.SummarizerFunc(func(context.Context, compaction.Request) (compaction.Response, error) {
		tried = append(tried, s.view().Seq())
		return compaction.Response{}, errModel
	})))
	for range 260 {
		_, _ = c.MaybeCompact(t.Context(), key)
		s.append("a2")
	}
	var grown []uint64
	for i := 1; i < len(tried); i++ {
		grown = append(grown, tried[i]-tried[i-1])
	}
	if want := []uint64{1, 2, 4, 8, 16, 32, 64, 64, 64}; !slices.Equal(grown, want) {
		t.Errorf("between attempts the log grew by %d records, want %d", grown, want)
	}
}

// If the summarizer fails and the prompt is at least 20 % over the threshold, the fallback writes the summary. The
// attempt then reports the summarizer's error. The next pass tries the summarizer first again.
func TestFallback(t *testing.T) {
	broken := true
	asked := 0
	fallback := &scripted{}
	cfg := compaction.Config{Enabled: true, TokenThreshold: 1_000, EventRetentionSize: 1}
	cfg.SetFallback(fallback)
	cfg.Summarizer = compaction.SummarizerFunc(func(context.Context, compaction.Request) (compaction.Response, error) {
		if asked++; broken {
			return compaction.Response{}, errModel
		}
		return says("by the model"), nil
	})
	s := newSession(t, "u1*200 a1*200 u2*200 a2*200 u3*200")
	var seen []compaction.Attempt[store.Key]
	c := s.with(cfg, compaction.Options[store.Key]{Observe: func(_ context.Context, a compaction.Attempt[store.Key]) { seen = append(seen, a) }})
	if _, err := c.MaybeCompact(t.Context(), key); !errors.Is(err, errModel) || s.view().PatchSeq() != 0 || fallback.calls() != 0 {
		t.Fatalf("at the threshold: %v, the fallback was asked %d times, visible is %s", err, fallback.calls(), s.visible())
	}
	s.append("a3*199")
	if done, err := c.MaybeCompact(t.Context(), key); err == nil || len(done) != 0 {
		t.Fatalf("below a fifth over it: %v, %v", done, err)
	}
	s.append("u4*10")
	done, err := c.MaybeCompact(t.Context(), key)
	if err != nil || len(done) != 1 || !done[0].UsedFallback || done[0].Model != "scripted" || asked != 2 {
		t.Fatalf("a fifth over it: %+v, %v, the model was asked %d times", done, err, asked)
	}
	if got := c.Stats(); got[compaction.Failed] != 2 || got[compaction.Wrote] != 1 {
		t.Errorf("counted is %+v", got)
	}
	s.append("a4*600 u5*600 a5*10")
	if done, err = c.MaybeCompact(t.Context(), key); err != nil || len(done) == 0 || asked != 3 {
		t.Fatalf("when it has grown: %+v, %v, the model was asked %d times", done, err, asked)
	}
	if a := seen[len(seen)-1]; a.Outcome != compaction.Wrote || !errors.Is(a.Err, errModel) || !a.Written.UsedFallback {
		t.Errorf("reported is %+v", a)
	}
	broken = false
	s.append("u6*600 a6*600 u7*10 a7*10 u8*10")
	if done, err = c.MaybeCompact(t.Context(), key); err != nil || len(done) == 0 || done[0].UsedFallback || done[0].Model == "" {
		t.Errorf("when the model answers again: %+v, %v", done, err)
	}
}

// If both answers for a window are refused, the window is skipped until the session has 64 more records. Meanwhile,
// later windows are summarised.
func TestSkippedUntilGrownBy64(t *testing.T) {
	s := newSession(t, "u1*200 a1*200 u2*200 a2*200")
	var tried []uint64
	others := 0
	cfg := every(2, 0, compaction.SummarizerFunc(func(_ context.Context, r compaction.Request) (compaction.Response, error) {
		if r.Events[0].ID() == "e0" {
			return compaction.Response{}, nil
		}
		others++
		return says("told"), nil
	}))
	cfg.TokenThreshold = 100
	cfg.SetFallback(compaction.SummarizerFunc(func(context.Context, compaction.Request) (compaction.Response, error) {
		tried = append(tried, s.view().Seq())
		return compaction.Response{}, nil
	}))
	c := s.compactor(cfg)
	for len(tried) < 2 && s.words < 400 {
		s.run(c)
		s.append(fmt.Sprintf("u%d*200", s.words))
	}
	if len(tried) < 2 || tried[1] < tried[0]+64 || tried[1] > tried[0]+68 {
		t.Fatalf("it was tried at %d, want 64 records between", tried)
	}
	if others == 0 {
		t.Error("nothing behind it was summarised")
	}
}

// Stats counts every pass of a compactor. It returns a map that the caller may modify.
func TestStatsAddUp(t *testing.T) {
	s := newSession(t, "u1*200 a1*200 u2*200 a2*200")
	c := s.compactor(every(2, 0, &scripted{}))
	want := uint64(0)
	for range 3 {
		done, err := c.MaybeCompact(t.Context(), key)
		if err != nil || len(done) == 0 {
			t.Fatalf("%v, %v", done, err)
		}
		want += uint64(len(done))
		s.append("u3*200 a4*300")
	}
	c.Stats()[compaction.Failed] = 7
	if got := c.Stats(); len(got) != 1 || got[compaction.Wrote] != want {
		t.Errorf("counted is %+v, want %d written", got, want)
	}
}

// If the summarizer fails, a short window is quoted only if the quote has fewer tokens than its events. Otherwise the
// fallback writes the summary.
func TestQuotesAreShorter(t *testing.T) {
	for _, c := range []struct {
		words  string
		quoted bool
	}{{"t1*50 u1*20 a1*20 u2", true}, {"u1*50 a1*50 u2", false}} {
		fails := &scripted{reply: func(compaction.Request) (compaction.Response, error) { return compaction.Response{}, errModel }}
		for name, answer := range map[string]compaction.Summarizer{"an error": fails, "too long": answering(strings.Repeat("too long ", 200))} {
			s := newSession(t, c.words)
			cfg := compaction.Config{Enabled: true, TokenThreshold: 30, EventRetentionSize: 1, Summarizer: answer}
			fallback := &scripted{}
			cfg.SetFallback(fallback)
			done := s.compact(cfg)
			if len(done) != 1 || done[0].TokensAfter >= done[0].TokensBefore || done[0].UsedFallback == c.quoted || (fallback.calls() == 0) != c.quoted {
				t.Errorf("%s, %s: %+v, the fallback was asked %d times", c.words, name, done, fallback.calls())
			}
		}
	}
}

// A window that is too small for any answer does not prevent summaries of other windows.
func TestSmallWindowDoesNotBlockOthers(t *testing.T) {
	s := newSession(t, "u1*1 u2*50 a2*50 u3*50 a3*50")
	sum := &scripted{reply: func(r compaction.Request) (compaction.Response, error) {
		return says("an answer of some length, but less than half of what is worth it"), nil
	}}
	c := s.compactor(every(1, 0, sum))
	pinned := compaction.Run{Pinned: []string{"e1"}}
	small := 0
	for i := range 60 {
		_, err := c.Compact(t.Context(), key, pinned)
		if errors.Is(err, compaction.ErrRefusedAnswer) {
			small++
		} else if err != nil {
			t.Fatal(err)
		}
		s.append(fmt.Sprintf("u%d*50 a%d*50", 9+i, 9+i))
	}
	if small > 3 {
		t.Errorf("the small window was refused %d times", small)
	}
	if n := s.view().Len(); n > 20 {
		t.Errorf("%d events are visible: %s", n, s.visible())
	}
}

package inspector_test

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fuzz/recorded"
	"github.com/patchlog-dev/patchlog/inspector"
	"github.com/patchlog-dev/patchlog/internal/command"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// says runs the command on a database and returns what it writes, with no line cut.
func says(t *testing.T, db string, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	env := func(name string) string { return map[string]string{"COLUMNS": "100000"}[name] }
	if code := command.Run(t.Context(), append(args, "--db", db), strings.NewReader(""), &out, &errs, env, command.Options{}); code != 0 {
		t.Fatalf("patchlog %q: %s", args, errs.String())
	}
	return out.String()
}

// text is what a reader sees of a page: its text, with blanks as one.
func text(t *testing.T, i *inspector.Inspector, page string, params url.Values) string {
	t.Helper()
	r := ask(i, "GET", "/"+page+"?"+params.Encode())
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != 200 {
		t.Fatalf("%s?%s: status %d, %v\n%s", page, params.Encode(), r.StatusCode, err, body)
	}
	words := regexp.MustCompile(`(<a [^>]*>)?</?mark[^>]*>(</a>)?`).ReplaceAllString(string(body), "") // inside of a line
	words = regexp.MustCompile(`(?s)<[^>]*>`).ReplaceAllString(words, " ")
	return blanks(html.UnescapeString(words))
}

func blanks(text string) string { return strings.Join(strings.Fields(text), " ") }

// compacted is a database with a recorded session that was compacted, cut, pinned, and partly taken
// back.
func compacted(t *testing.T) (db string, key store.Key) {
	t.Helper()
	db = filepath.Join(t.TempDir(), "sessions.db")
	key = store.Key{App: "shop", User: "ada", Session: "4711"}
	s := testlog.Must(store.Open(db, store.Options{}))(t)
	defer s.Close()
	ctx := t.Context()
	testlog.Must(s.Create(ctx, key, map[string]any{"tenant": "north"}))(t)
	cfg := compaction.DefaultConfig()
	cfg.TokenThreshold, cfg.EventRetentionSize, cfg.CompactionInterval = 3_000, 6, 3
	c := testlog.Must(compaction.New(s, cfg, compaction.Options[store.Key]{}))(t)
	for n, r := range recorded.Log(t, 160) {
		testlog.Must(s.AppendEvents(ctx, key, store.AppendOptions{}, r.Event))(t)
		if n%40 == 39 {
			testlog.Must(c.Compact(ctx, key, compaction.Run{Force: true}))(t)
		}
	}
	v := testlog.Must(s.View(ctx, key))(t)
	for _, p := range []*patch.PatchEvent{
		patch.NewPin(v.At(v.Len() - 1).ID()), patch.NewSplice(0, 1).WithID("the-cut"),
	} {
		testlog.Must(s.ApplyPatch(ctx, key, store.PatchOptions{AsOfNow: true, AllowOrphans: true}, p))(t)
	}
	testlog.Must(s.Revert(ctx, key, store.UndoOptions{AllowOrphans: true}, "the-cut"))(t)
	return db, key
}

// What the pages say of a session is what the command says of it, figure by figure and line by line.
func TestPagesSayWhatTheCommandSays(t *testing.T) {
	db, key := compacted(t)
	s := testlog.Must(store.Open(db, store.Options{ReadOnly: true}))(t)
	defer s.Close()
	i := newInspector(t, s, inspector.Options{})
	of := func(pairs ...string) url.Values {
		v := url.Values{"key": {key.String()}}
		for n := 0; n < len(pairs); n += 2 {
			v.Set(pairs[n], pairs[n+1])
		}
		return v
	}
	last := 0
	fmt.Sscan(regexp.MustCompile(`records +(\d+)`).FindStringSubmatch(says(t, db, "stats", key.String()))[1], &last)

	t.Run("stats", func(t *testing.T) {
		page := text(t, i, "session", of())
		figures, state, _ := strings.Cut(strings.TrimSpace(says(t, db, "stats", key.String())), "\n\n")
		lines := strings.Split(figures, "\n")
		if len(lines) < 12 {
			t.Fatalf("%d lines", len(lines))
		}
		values := strings.Split(state, "\n")
		if len(values) < 2 {
			t.Fatalf("no state in %q", state)
		}
		for _, line := range append(lines[1:], values[1:]...) { // the first ones are the key and a heading
			line = blanks(line)
			if !strings.Contains(page, line) && !strings.Contains(page, strings.ToUpper(line[:1])+line[1:]) {
				t.Errorf("the page does not say %q", line)
			}
		}
	})
	t.Run("audit", func(t *testing.T) {
		var pages strings.Builder
		for from := 1; from <= last; from += 100 {
			pages.WriteString(text(t, i, "session", of("log", fmt.Sprint(from))) + "\n")
		}
		all := pages.String()
		patches := 0
		for _, line := range strings.Split(strings.TrimSpace(says(t, db, "audit", key.String())), "\n") {
			cells := regexp.MustCompile(` {2,}`).Split(strings.TrimSpace(line), -1)
			if cells[0] == "" {
				continue
			}
			want := cells[len(cells)-1] // of a record its text, of a note all
			if len(cells) > 1 && cells[1] != "event" {
				patches++
			}
			if !strings.Contains(all, blanks(want)) {
				t.Errorf("the pages do not say %q", want)
			}
		}
		if patches < 5 {
			t.Errorf("%d patches were compared", patches)
		}
	})
	t.Run("log", func(t *testing.T) {
		page := text(t, i, "session", of("visible", "0"))
		for _, line := range strings.Split(strings.TrimSpace(says(t, db, "log", key.String())), "\n")[2:] {
			cells := regexp.MustCompile(` {2,}`).Split(strings.TrimSpace(line), -1)
			if want := cells[len(cells)-1]; !strings.Contains(page, blanks(want)) {
				t.Errorf("the page does not say %q", want)
			}
		}
	})
	t.Run("diff", func(t *testing.T) {
		for _, span := range [][2]int{{0, last}, {39, 45}, {last - 2, last - 1}, {last - 1, last - 1}} {
			from, to := fmt.Sprint(span[0]), fmt.Sprint(span[1])
			page := text(t, i, "diff", of("from", from, "to", to))
			for _, line := range strings.Split(strings.TrimSpace(says(t, db, "diff", key.String(), from, to)), "\n")[1:] {
				cells := regexp.MustCompile(` {2,}`).Split(strings.TrimSpace(line), -1)
				if last := cells[len(cells)-1]; last == "event" || last == "value" {
					continue // of a heading
				} else if !strings.Contains(page, blanks(last)) {
					t.Errorf("from %s to %s, the page does not say %q", from, to, last)
				}
			}
		}
	})
	t.Run("loss", func(t *testing.T) {
		said := says(t, db, "loss", key.String())
		blocks := strings.Split(strings.TrimSpace(said), "\n\n")[1:]
		if len(blocks) == 0 {
			t.Fatal("no summary is visible")
		}
		for _, block := range blocks {
			index := regexp.MustCompile(`^index (\d+)`).FindStringSubmatch(block)[1]
			page := text(t, i, "summary", of("at", fmt.Sprint(last), "index", index))
			for _, line := range strings.Split(block, "\n") {
				if !strings.Contains(page, blanks(line)) {
					t.Errorf("the page does not say %q", blanks(line))
				}
			}
		}
	})
}

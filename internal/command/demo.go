package command

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

//go:embed demo/session.jsonl
var demoSession []byte

func (a *app) demoCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show on real sessions what patches and compaction do",
		Long: `It runs commands such as you would type, on a temporary database. With --json it writes only the figures
after each step.`,
		Example: examples("patchlog demo"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.demo(cmd.Context())
	}
	return cmd
}

// When the demo's patches are logged: after its events.
var demoTime = time.Date(2024, 6, 6, 9, 0, 0, 0, time.UTC)

const demoKey = "airline/omar_davis/downgrade"

// demoStep is a command of the demo, with what a reader has to know.
type demoStep struct {
	name  string
	text  string
	key   string // of the session; "" means demoKey
	args  []string
	stdin []byte
	shell string // what the command line looks like, if not as args
	fails bool   // the command refuses, as it should
}

// demoSteps are patches made by hand, then compaction.
func demoSteps() []demoStep { return append(demoPatches(), demoCompaction()...) }

// The demo's sessions are fixed, and so are indices and ids in them.
func demoPatches() []demoStep {
	const note = `{"author":"airline_agent","content":{"role":"model","parts":[{"text":"(Twelve flight searches were cleared from here; their prices are in the calculation below.)"}]}}`
	const summary = "Omar's bookings: JG7FMM, LQ940Q, 2FBBAH, X7BYG1, EQ1G6C and BOH180. LQ940Q is in economy already; the other five are in business class."
	return []demoStep{{
		name: "import",
		text: `A real session of an airline's assistant: a customer wants all his bookings downgraded to
economy. The assistant looks up six bookings and twelve flights, and each look-up leaves its
whole result in the log. Importing is all or nothing, and safe to repeat.`,
		args:  []string{"import", demoKey, "-"},
		stdin: demoSession,
		shell: "patchlog import " + demoKey + " - < session.jsonl",
	}, {
		name: "look",
		text: `The end of what the model sees. Index is what patches count by, seq the place in the log.`,
		args: []string{"log", demoKey, "--last", "6"},
	}, {
		name: "refused patch",
		text: `Event 26 is the result of a flight search. Hiding it alone would leave its call without an
answer, and a model's API refuses such a prompt. The patch is refused, and nothing is
written. (The call's id is used again later in this session; calls and results are paired
in order, not by id alone.)`,
		args:  []string{"patch", demoKey, "26", "1"},
		fails: true,
	}, {
		name: "splice",
		text: `The whole stretch of searches passes: 24 events give way to a note of one line. What they
set in the state (counters here) is kept, since we ask for that.`,
		args:  []string{"patch", demoKey, "25", "24", "--replacement", "-", "--state", "keep"},
		stdin: []byte(note),
		shell: "patchlog patch " + demoKey + " 25 24 --replacement - --state keep < note.jsonl",
	}, {
		name: "dry run",
		text: `The talk before the customer's go-ahead can go as well. A dry run shows what that would do:
without --state keep, what the hidden events set would leave the state with them.`,
		args: []string{"patch", demoKey, "0", "8", "--dry-run"},
	}, {
		name: "truncate",
		text: `So we keep the state.`,
		args: []string{"patch", demoKey, "0", "8", "--state", "keep"},
	}, {
		name: "summarise",
		text: `Sixteen events of looking up bookings become one sentence. A summary keeps the state
unless told otherwise.`,
		args: []string{"patch", demoKey, "1", "16", "--summary", summary},
	}, {
		name: "log",
		text: `What the model sees now:`,
		args: []string{"log", demoKey},
	}, {
		name: "time travel",
		text: `Nothing was lost. This is how the log stood after record 61, before the patches:`,
		args: []string{"log", demoKey, "--at", "61", "--last", "3"},
	}, {
		name: "audit",
		text: `And this is what was logged since, with what each patch hid:`,
		args: []string{"audit", demoKey, "--from", "62"},
	}}
}

// demoFigures are what a step left.
type demoFigures struct {
	Session string `json:"session"`
	Step    string `json:"step"`
	Records uint64 `json:"records"`
	Events  int    `json:"events"` // of the records, those that are no patch
	Visible int    `json:"visible"`
	Bytes   int    `json:"bytes"`
	Tokens  int    `json:"tokens"`
}

func (a *app) demo(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "patchlog-demo-")
	if err != nil {
		return err
	}
	defer func() {
		if removeErr := os.RemoveAll(dir); err == nil {
			err = removeErr
		}
	}()
	d := demo{app: a, db: filepath.Join(dir, "demo.db"), state: map[string]string{}}
	for i, step := range demoSteps() {
		if err := d.step(ctx, i+1, step); err != nil {
			return err
		}
	}
	return d.end(ctx)
}

// demo is a demo that goes on.
type demo struct {
	app     *app
	db      string
	figures []demoFigures
	state   map[string]string // by session, as its events left it
}

func (d *demo) step(ctx context.Context, n int, step demoStep) error {
	out := d.app.out
	if !d.app.json {
		out.line(out.paint(bold, fmt.Sprintf("%d. %s", n, strings.ToUpper(step.name[:1])+step.name[1:])), "\n")
		out.line(step.text, "\n")
		out.line(out.paint(green, "$ "+step.commandLine()))
	}
	refusal, err := d.command(ctx, step)
	switch {
	case err != nil:
		return err
	case step.fails != (refusal != nil):
		return fmt.Errorf("demo: step %q: unexpected outcome: %v", step.name, refusal)
	case refusal != nil && !d.app.json:
		out.problem(refusal.Error())
	}
	if !d.app.json {
		out.line()
	}
	if err := out.flush(); err != nil {
		return err
	}
	return d.measure(ctx, step)
}

func (s demoStep) commandLine() string {
	if s.shell != "" {
		return s.shell
	}
	words := []string{"patchlog"}
	for _, arg := range s.args {
		if strings.Contains(arg, " ") {
			arg = `"` + arg + `"`
		}
		words = append(words, arg)
	}
	return strings.Join(words, " ")
}

// command runs a command as a user would, on the demo's database. A refusal is the
// command's own error; err is one that ends the demo.
func (d *demo) command(ctx context.Context, step demoStep) (refusal, err error) {
	sub := *d.app
	sub.db = d.db
	sub.options.Now = func() time.Time { return demoTime } // so that the demo is the same each time
	sub.stdin = bytes.NewReader(step.stdin)
	var quiet bytes.Buffer
	if sub.json {
		sub.json = false
		sub.out = newOutput(&quiet, sub.env)
	}
	refusal = sub.execute(ctx, step.args)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return refusal, nil
}

// measure notes the figures if the step has changed them, and checks that no patch has
// changed the state.
func (d *demo) measure(ctx context.Context, step demoStep) error {
	s, err := store.Open(d.db, d.app.options)
	if err != nil {
		return err
	}
	defer s.Close()
	key, err := store.ParseKey(cmp.Or(step.key, demoKey))
	if err != nil {
		return err
	}
	session, err := s.Get(ctx, key)
	if err != nil {
		return err
	}
	f := demoFigures{Session: key.String(), Step: step.name, Records: session.View.Seq(), Visible: session.View.Len()}
	f.Bytes, f.Tokens = present.SizeOf(session.View)
	for r, err := range s.RawEvents(ctx, key, 1) {
		if err != nil {
			return err
		}
		if r.Event != nil {
			f.Events++
		}
	}
	last := demoFigures{}
	if n := len(d.figures); n > 0 {
		last = d.figures[n-1]
	}
	if last.Session == f.Session && last.Records == f.Records {
		return nil
	}
	d.figures = append(d.figures, f)
	state := fmt.Sprint(maps.Collect(session.View.Values()))
	if step.args[0] == "import" {
		d.state[f.Session] = state
	}
	if d.state[f.Session] != state {
		return fmt.Errorf("demo: step %q has changed the state", step.name)
	}
	return nil
}

func (d *demo) end(ctx context.Context) error {
	out := d.app.out
	if d.app.json {
		return out.document(struct {
			Steps []demoFigures `json:"steps"`
		}{d.figures})
	}
	out.line(out.paint(bold, "What it comes to"), "\n")
	t := newTable("after", "records", "events logged", "events visible", "bytes visible", "tokens, about").numbers(6)
	t.right[0] = false
	for _, f := range d.figures {
		t.add(cell{f.Step, plain}, cell{fmt.Sprint(f.Records), plain}, cell{fmt.Sprint(f.Events), plain}, cell{fmt.Sprint(f.Visible), plain},
			cell{present.Grouped(f.Bytes), plain}, cell{present.Grouped(f.Tokens), plain})
	}
	if err := out.table(t); err != nil {
		return err
	}
	return out.line("\nThe prompts have become short; the logs have every event, and no patch has changed the state.")
}

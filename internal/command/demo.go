package command

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

//go:embed demo/session.jsonl
var demoSession []byte

func (a *app) demoCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show on real sessions what patches and compaction do",
		Long: `It runs commands such as you would type, on a temporary database. With --json it writes what these write
with it.`,
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
	}, {
		name: "figures",
		text: `The prompt has become short; the log has every event, and no patch has changed the state.`,
		args: []string{"stats", demoKey},
	}}
}

func (a *app) demo(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "patchlog-demo-")
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, os.RemoveAll(dir)) }()
	sub := *a
	sub.db = filepath.Join(dir, "demo.db")
	sub.options.Now = func() time.Time { return demoTime } // so that the demo is the same each time
	for n, step := range demoSteps() {
		if !a.json {
			a.out.line(a.out.paint(bold, fmt.Sprintf("%d. %s", n+1, strings.ToUpper(step.name[:1])+step.name[1:])), "\n")
			a.out.line(step.text, "\n")
			a.out.line(a.out.paint(green, "$ "+step.commandLine()))
		}
		sub.stdin = bytes.NewReader(step.stdin)
		refusal := sub.execute(ctx, step.args)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case step.fails != (refusal != nil):
			return fmt.Errorf("demo: step %q: unexpected outcome: %v", step.name, refusal)
		case refusal != nil && !a.json:
			a.out.problem(refusal.Error())
		}
		if !a.json {
			a.out.line()
		}
		if err := a.out.flush(); err != nil {
			return err
		}
	}
	return nil
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

package extractive

import (
	"fmt"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/internal/testlog"
	"github.com/patchlog-dev/patchlog/patch"
)

func event(invocation, author string, part any) *patch.Event {
	return testlog.Parts("", invocation, author, part)
}

func said(invocation, author, text string) *patch.Event {
	return testlog.Text("", invocation, author, text)
}

func called(id, name string, args map[string]any) *patch.Event {
	return testlog.Parts("", "a", "agent", testlog.Call(id, name, args))
}

func answered(id, name string, response map[string]any) *patch.Event {
	return testlog.Parts("", "a", "agent", testlog.Response(id, name, response))
}

func result(invocation string, response map[string]any) *patch.Event {
	return testlog.Parts("", invocation, "agent", testlog.Response("", "look", response))
}

func told(text string) *patch.Event { return testlog.Summary("user", text) }

// commands returns shell calls with empty results.
func commands(all ...string) (events []*patch.Event) {
	for i, command := range all {
		id := fmt.Sprint("sh", i)
		events = append(events, called(id, "bash", map[string]any{"command": command}), answered(id, "bash", map[string]any{"result": "", "returncode": 0}))
	}
	return events
}

// filler returns a text of the agent with no facts, which a summary may omit.
func filler(n int) *patch.Event {
	return said("a", "agent", strings.Repeat("The weather in the valley is as mild as ever, and nobody minds. ", n))
}

func TestSummarise(t *testing.T) {
	cells := map[string]any{"zz_order_id": "ORD-77120"}
	for i := range 14 {
		cells[fmt.Sprintf("c%02d", i)] = fmt.Sprint("v", i)
	}
	var reads []*patch.Event
	for i := range 9 {
		id := fmt.Sprint("k", i)
		reads = append(reads, called(id, "read", map[string]any{"path": fmt.Sprintf("/srv/report%d.md", i)}), answered(id, "read", map[string]any{"result": "fine"}))
	}
	var turns []*patch.Event
	for i := range 12 {
		id := fmt.Sprint("t", i)
		turns = append(turns, said(id, "user", fmt.Sprintf("Please paint wall %d in the colour of cherries, and never use a roller on it.", i)),
			event(id, "agent", map[string]any{"functionCall": map[string]any{"id": id, "name": "paint", "args": map[string]any{"wall": fmt.Sprint("W", i)}}}),
			event(id, "agent", map[string]any{"functionResponse": map[string]any{"id": id, "name": "paint", "response": map[string]any{"result": "ok"}}}),
			said(id, "agent", fmt.Sprintf("Wall %d is painted now, with two coats of it. %s Shall I go on with the next wall?", i, strings.Repeat("It went well. ", 60))))
	}
	for _, c := range []struct {
		name   string
		events []*patch.Event
		max    int
		has    string // required parts of the summary, separated by ~
		lacks  string
	}{
		{"a fence on one line", []*patch.Event{said("a", "user", "```make test``` fails. Find out why."), filler(80)}, 200, "Find out why.", ""},
		{"a fence that is not closed", []*patch.Event{said("a", "agent", "Look:\n```\nx = 1\nThe cause is the missing index."), said("b", "user", "```\nls\nDelete nothing, please."), filler(80)}, 300, "The cause is the missing index.~Delete nothing, please.", ""},
		{"a closed fence of the agent's", []*patch.Event{said("a", "agent", "It is fixed by this.\n```go\nx := 1\n```\nDone with it."), filler(40)}, 300, "It is fixed by this.~Done with it.", "x := 1"},
		{"a request behind a long paste", []*patch.Event{said("a", "user", strings.Repeat("- Deployment notes of the ledger, manual and scripted.\n", 700)+"Continue please, and mind the freeze of Friday."), filler(40)}, 300, "mind the freeze of Friday", ""},
		{"an id behind the twelfth cell", []*patch.Event{result("a", cells), filler(80)}, 400, "zz_order_id | c00~ORD-77120 | v0", ""},
		{"different calls", append([]*patch.Event{said("a", "user", "Compare them.")}, append(reads, filler(80))...), 400, "read ×9, last: path=/srv/report8.md", "report8.md) ×9"},
		{"the same calls", []*patch.Event{called("1", "tick", nil), answered("1", "tick", nil), called("2", "tick", nil), answered("2", "tick", nil), filler(40)}, 400, "Did: tick ×2", ""},
		{"what the program says", []*patch.Event{
			testlog.EventOf(t, map[string]any{"invocationId": "a", "author": "codex", "content": map[string]any{"role": "user", "parts": []any{map[string]any{"text": "# AGENTS.md: a guide for effective skills."}}}}),
			said("a", "user", "Begin."), filler(80),
		}, 300, "Begin.", "AGENTS.md~skills"},
		{"labels are true", []*patch.Event{
			said("a", "user", "Which versions?"), called("1", "bash", map[string]any{"command": "npm ls", "max_output_tokens": 12000, "yield_time_ms": 10000}),
			answered("1", "bash", map[string]any{"result": "openai@6.26.0\nws@8.20.0\nnext 16.1.6"}), called("2", "bash", map[string]any{"command": "sed -n '120,140p' a.go"}), filler(80),
		}, 300, "", "e-mails~dates~max_output_tokens: ~yield_time_ms: ~\n- 120,140p"},
		{"last states", []*patch.Event{
			said("a", "user", "Repair it."),
			called("1", "bash", map[string]any{"command": "cd /w && go test ./..."}), answered("1", "bash", map[string]any{"result": "--- FAIL: TestX\nFAIL\nexit status 1", "returncode": 1}),
			called("2", "edit", map[string]any{"path": "/w/x.go", "old_text": "a", "new_text": "b"}), answered("2", "edit", map[string]any{"result": "ok"}),
			called("3", "edit", map[string]any{"path": "/w/x.go", "old_text": "b", "new_text": "c"}), answered("3", "edit", map[string]any{"result": "ok"}),
			called("4", "bash", map[string]any{"command": "cd /w && go test ./... -count 1"}), answered("4", "bash", map[string]any{"result": "ok  \tall of it", "returncode": 0}),
			called("5", "bash", map[string]any{"command": "rm /w/y"}), answered("5", "bash", map[string]any{"error": "rm: cannot remove '/w/y': busy"}),
			filler(80),
		}, 400, "changed /w/x.go ×2; go test ./... -count 1 → ok all of it; failed rm: cannot remove '/w/y': busy (rm /w/y)", "TestX"},
		{"files that a shell writes", []*patch.Event{
			called("1", "bash", map[string]any{"command": "cd /w && cat > src/a.py <<'EOF'\nif x > limit: print(1)\nEOF"}), called("2", "bash", map[string]any{"command": "cd /w && sed -i 's/a > b/c/' src/b.py"}),
			called("3", "bash", map[string]any{"command": "echo x >> notes.txt 2>/dev/null; python run.py > /dev/null 2>&1 | tee -a run.log"}),
			called("4", "bash", map[string]any{"command": "# don't test: docs -> old/docs, a => b\ncat docs"}), filler(80),
		}, 400, "changed src/a.py, src/b.py, notes.txt, run.log", "limit,~/dev/null,~old/docs\n~# don't test: docs -> old/docs, a => b →"},
		{"what the last calls were", append([]*patch.Event{said("a", "user", "Find the leak.")}, append(commands("git log -3", "psql -c 'select 1'", "grep -rn pool.Get src", "psql -c 'select 2'", "go test -run Leak ./pool", "echo 1 > a.txt", "go tool pprof heap.out"), filler(80))...), 400,
			"bash ×7, last: command=go tool pprof heap.out; before bash(command=git log -3), bash(command=psql -c 'select 2')\n  State: changed a.txt; go test -run Leak ./pool → done", ""},
		{"calls without an answer", append([]*patch.Event{called("1", "lend", nil), called("2", "lend", map[string]any{"a": 1}), called("3", "ask", nil)}, filler(80)), 400, "- unanswered: lend ×2, ask", ""},
		{"what is said twice", []*patch.Event{
			said("a", "agent", "The lock is held by the flusher. Deadlocks of Postgres look alike, as Margarethe wrote in the runbook."), called("1", "look", nil), answered("1", "look", nil),
			said("a", "agent", "The lock is held by the flusher. It is never released on an error."), called("2", "look", nil), answered("2", "look", nil), said("a", "agent", "Done."), filler(40),
		}, 400, "in the runbook. It is never released on an error.", ""},
		{"the wrapper of a check", []*patch.Event{
			called("1", "bash", map[string]any{"command": "npm run check"}), answered("1", "bash", map[string]any{"result": "> app@1.0.0 check\n> tsc\n\nsrc/a.ts(3,1): error TS2304: Cannot find name 'Pool'.\nnpm error command failed\nnpm error command sh -c tsc", "exitCode": 2}),
			called("2", "bash", map[string]any{"command": "npm run build"}), answered("2", "bash", map[string]any{"result": "\n> app@1.0.0 build\n> tsc --noEmit\n", "exitCode": 0}), filler(80),
		}, 400, "Cannot find name 'Pool'~npm run build → done", "npm error~> tsc"},
		{"a long path", []*patch.Event{
			called("1", "read", map[string]any{"path": "/srv/people/margarethe/workspaces/the-ledger/packages/importer/src/configuration.ts", "limit": 20}), filler(80),
		}, 400, "path=…workspaces/the-ledger/packages/importer/src/configuration.ts", ""},
		{"words with marks", []*patch.Event{called("1", "ls", nil), answered("1", "ls", map[string]any{"result": "pkg/__init__.py, __init__.py:12 and @acme/pool@2.14.1"}), filler(80)}, 400,
			"- pkg/__init__.py, __init__.py:12, @acme/pool@2.14.1", ""},
		{"places in a listing", []*patch.Event{called("1", "grep", nil), answered("1", "grep", map[string]any{"result": "12:import os\n13:from x1 import y\nab12cd34 took 123ms, ~2190-2270, 1300p\nflake8-0.10.2 0.10.12 costs 119.99 at 10.0.0.12, 90210"}), filler(120)}, 400,
			"ab12cd34, flake8-0.10.2, 10.0.0.12, 90210", "12:import~13:from~123ms~2190~1300p"},
		{"rows within a row", []*patch.Event{
			called("1", "get", map[string]any{"order": "ORD-1001"}), answered("1", "get", map[string]any{"order_id": "ORD-1001", "state": "paid", "payments": []any{map[string]any{"payment_id": "card_7712", "amount": 12}}}),
			called("2", "get", map[string]any{"order": "ORD-1002"}), answered("2", "get", map[string]any{"order_id": "ORD-1002", "state": "open", "payments": []any{map[string]any{"payment_id": "card_7712", "amount": 99}}}), filler(120),
		}, 600, "payment_id | amount | order_id~card_7712 | 12 | ORD-1001~card_7712 | 99 | ORD-1002", ""},
		{"headings with nothing under them", []*patch.Event{said("a", "user", "How?"), said("a", "agent", "This is the design.\n## Print mode\n```\nprint()\n```\n## Remote mode\n```\nserve()\n```\n**Interactive mode**\nIt keeps the screen."), filler(60)}, 400, "Interactive mode~It keeps the screen.", "Print mode~Remote mode"},
		{"imports of a file that a call writes", []*patch.Event{
			called("1", "write", map[string]any{"path": "/w/src/pool.ts", "content": "import { a } from '../util/shell7.js';\nimport b from './keys2.js';\n" + strings.Repeat("const x = compute(a, b);\n", 30) + "// see docs/pool9.md"}), filler(80),
		}, 400, "- docs/pool9.md\nSeen:\n- ../util/shell7.js, ./keys2.js", ""},
		{"an error that is over", []*patch.Event{
			called("1", "book", map[string]any{"seat": "12A"}), answered("1", "book", map[string]any{"error": "seat is taken"}),
			called("2", "book", map[string]any{"seat": "13A"}), answered("2", "book", map[string]any{"result": "ok"}), filler(80),
		}, 300, "", "seat is taken"},
		{"an edit that is made in another way", []*patch.Event{
			called("1", "edit", map[string]any{"path": "/w/x.go", "old_text": "a", "new_text": "b"}), answered("1", "edit", map[string]any{"error": "no such text"}),
			called("2", "write", map[string]any{"path": "/w/x.go", "content": "b"}), answered("2", "write", map[string]any{"result": "ok"}), filler(80),
		}, 300, "changed /w/x.go", "no such text"},
		{"older turns shrink first", turns, 420, "Wall 11 is painted now~Shall I go on with the next wall?~paint wall 0 in", "Wall 0 is painted"},
		{"courtesies", []*patch.Event{said("a", "user", "Hello!"), said("a", "agent", "Hi!"), said("b", "user", "Thanks. Send the goods to gate 7."), filler(80)}, 300, "Send the goods to gate 7.", "Hello~Thanks"},
		{"short decisions", append(turns[:len(turns):len(turns)], said("z", "user", "no, all of it")), 400, "no, all of it", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Summarise(Input{Events: c.events, MaxTokens: c.max})
			if n := patch.EstimateTextTokens(got); n > c.max {
				t.Errorf("%d tokens, of %d", n, c.max)
			}
			for _, has := range strings.Split(c.has, "~") {
				if !strings.Contains(got, has) {
					t.Errorf("%q is not in\n%s", has, got)
				}
			}
			for _, lacks := range strings.Split(c.lacks, "~") {
				if lacks != "" && strings.Contains(got, lacks) {
					t.Errorf("%q is in\n%s", lacks, got)
				}
			}
			if identifiers.Invents(got, identifiers.NewIndex(identifiers.Text(c.events...))) {
				t.Errorf("it has identifiers of its own:\n%s", got)
			}
		})
	}
}

// If the transcript has a line for an event, the event has a non-empty summary. With an empty summary, a window
// that contains only this event would never be summarised.
func TestSaysSomething(t *testing.T) {
	program := testlog.EventOf(t, map[string]any{"author": "codex", "content": map[string]any{"role": "user", "parts": []any{map[string]any{"text": "# AGENTS.md: " + strings.Repeat("a guide. ", 50)}}}})
	for _, e := range []*patch.Event{
		program, said("a", "user", "hi"), said("a", "agent", "ok"), said("a", "user", "```"), said("a", "user", "?!"), result("a", map[string]any{"result": "no id in it"}), result("a", nil),
		event("a", "agent", map[string]any{"codeExecutionResult": map[string]any{"output": "4"}}), event("a", "agent", map[string]any{"toolCall": map[string]any{"q": 1}}),
		called("1", "f", nil), event("a", "user", map[string]any{"inlineData": map[string]any{"mimeType": "image/png", "data": "QUJD"}}),
	} {
		if got := Summarise(Input{Events: []*patch.Event{e}, MaxTokens: 200}); got == "" || patch.EstimateTextTokens(got) > 60 {
			t.Errorf("of %s it says %q", e, got)
		}
	}
}

// Strings from JSON results appear in a summary without JSON escapes.
func TestSummaryHasNoEscapes(t *testing.T) {
	returned := func(key, text string) *patch.Event {
		return answered("", "f", map[string]any{key: text, "list": []any{text, map[string]any{"id": text}}})
	}
	events := []*patch.Event{returned("error", "x"), returned("result", "\x00")}
	got := Summarise(Input{Events: events, MaxTokens: 26})
	if identifiers.Invents(got, identifiers.NewIndex(identifiers.Text(events...))) || strings.Contains(got, "u0000") {
		t.Errorf("it has identifiers of its own: %q", got)
	}
}

// Long texts are cut between words.
func TestIdentifiersAreNotCut(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("0123456789 ", 1_490), strings.Repeat("0123456789", 3_000), strings.Repeat("Bestellung-4711-77;", 500), strings.Repeat("订单A-4711号", 900),
		"©1998–\u20682025\u2069 by the authors, " + strings.Repeat("and others ", 200), `{"a":"{\"b\":\"1998\\u20132025\"}"}`,
	} {
		for _, e := range []*patch.Event{said("a", "user", text), said("a", "agent", text), result("a", map[string]any{"output": text}), called("1", "f", map[string]any{"x": text})} {
			for max := 3; max < 300; max += 7 {
				got := Summarise(Input{Events: []*patch.Event{e}, MaxTokens: max})
				if identifiers.Invents(got, identifiers.NewIndex(identifiers.Text(e))) {
					t.Fatalf("of %.40q, in %d tokens:\n%s", text, max, got)
				}
			}
		}
	}
}

// A summary does not repeat facts of earlier summaries. It shows each row in its last state.
func TestNoRepetitions(t *testing.T) {
	got := Summarise(Input{
		Events: []*patch.Event{
			said("a", "user", "Pay TK-70001."),
			result("a", map[string]any{"card": "card_4421486", "receipt": "RC-30001"}),
			result("a", map[string]any{"order_id": "ORD-1", "state": "open"}), result("a", map[string]any{"order_id": "ORD-1", "state": "paid"}),
			filler(40),
		},
		EarlierSummaries: []*patch.Event{told("Seen:\n- card: card_4421486\n- ticket: TK-70001")}, MaxTokens: 400,
	})
	for has, want := range map[string]bool{"- card:": false, "RC-30001": true, "Pay TK-70001": true, "ORD-1 | paid": true, "ORD-1 | open": false} {
		if strings.Contains(got, has) != want {
			t.Errorf("that it has %q is %v:\n%s", has, !want, got)
		}
	}
}

// A later state of a row replaces an earlier state, even if the later state has more columns.
func TestLastStateOfARow(t *testing.T) {
	got := Summarise(Input{Events: []*patch.Event{
		said("a", "user", "Cancel it."), result("a", map[string]any{"order_id": "ORD-1001", "seat": "window"}),
		result("a", map[string]any{"order_id": "ORD-1001", "seat": "window", "state": "cancelled"}), filler(40),
	}, MaxTokens: 400})
	if !strings.Contains(got, "ORD-1001 | window | cancelled") || strings.Count(got, "ORD-1001") != 1 {
		t.Errorf("got\n%s", got)
	}
}

// If the summary has little room, the most informative sentences remain, in any language.
func TestKeepsInformativeSentences(t *testing.T) {
	for language, c := range map[string]struct{ chat, has string }{
		"English": {"I was thinking about it again and it is hard to say why. We could talk about that later, if you want.", "I am allergic to hazelnuts."},
		"German":  {"Ich habe wieder darüber nachgedacht und weiß nicht so recht warum. Wir können gern später noch einmal darüber reden.", "Gegen Haselnüsse bin ich allergisch."},
		"Russian": {"Я опять об этом думал и не знаю почему. Потом можно ещё раз об этом, если вы хотите.", "У меня аллергия на фундук."},
		"Chinese": {"我又想了一下这个，但是还是不知道为什么。现在可以的话，我们就这样。", "我对榛子过敏。"},
	} {
		var events []*patch.Event
		for i := range 20 {
			text := c.chat
			if i == 11 {
				text += " " + c.has
			}
			events = append(events, said(fmt.Sprint(i), "user", text), said(fmt.Sprint(i), "agent", c.chat))
		}
		if got := Summarise(Input{Events: events, MaxTokens: 150}); !strings.Contains(got, c.has) {
			t.Errorf("%s: %q is not in\n%s", language, c.has, got)
		}
	}
}

// Objects without an id are identified by their date, and two objects with the same date have two rows.
func TestDatedRows(t *testing.T) {
	ann := map[string]any{"first": "Ann", "last": "Li", "born": "1990-04-05"}
	bo := map[string]any{"first": "Bo", "last": "Ito", "born": "1990-04-05"}
	got := Summarise(Input{Events: []*patch.Event{
		said("a", "user", "Who travels?"), result("a", map[string]any{"people": []any{ann, bo, ann}}), filler(60),
	}, MaxTokens: 400})
	if want := "Rows:\n- born | first | last\n1990-04-05 | Bo | Ito\n1990-04-05 | Ann | Li"; !strings.Contains(got, want) {
		t.Errorf("got\n%s\nwant in it\n%s", got, want)
	}
}

// The input of Extractive can include a summary that another summarizer wrote.
func TestOtherSummaries(t *testing.T) {
	got := Summarise(Input{OtherSummaries: []*patch.Event{told("## Keep in mind\n- Never call before nine.\n\n**Open:**\n* Who pays the postage of INV-20001?\n")}, Events: []*patch.Event{said("a", "user", "Go on, and mind the cat.")}, MaxTokens: 2000})
	for _, has := range []string{"Earlier: ", "Never call before nine.", "Who pays the postage of INV-20001?", "mind the cat"} {
		if !strings.Contains(got, has) {
			t.Errorf("%q is not in\n%s", has, got)
		}
	}
}

// Hostile input is summarised in little time and within the size limit.
func TestHostileInput(t *testing.T) {
	for name, text := range map[string]string{
		"a megabyte of digits":  strings.Repeat("7", testlog.ScaleDownForRace(1<<20)),
		"a megabyte of numbers": strings.Repeat("12345 ", testlog.ScaleDownForRace(1<<17)),
		"different numbers": func() string {
			var b strings.Builder
			for i := range testlog.ScaleDownForRace(100_000) {
				fmt.Fprintf(&b, "id_%d ", i)
			}
			return b.String()
		}(),
		"strokes":                strings.Repeat("/a", testlog.ScaleDownForRace(1<<19)),
		"capitals":               strings.Repeat("Aa ", testlog.ScaleDownForRace(1<<18)),
		"quotes":                 strings.Repeat(`", "`, testlog.ScaleDownForRace(1<<17)),
		"headings":               strings.Repeat("Rows:\n- a | b\n", testlog.ScaleDownForRace(1<<15)),
		"arrows":                 strings.Repeat(" → did: ", testlog.ScaleDownForRace(1<<15)),
		"a megabyte of brackets": strings.Repeat("[", testlog.ScaleDownForRace(1<<19)),
	} {
		for _, events := range [][]*patch.Event{
			{said("a", "user", text), result("a", map[string]any{"x": text}), event("a", "agent", map[string]any{"functionCall": map[string]any{"name": "f", "args": map[string]any{"a": text, "path": "/x/y"}}})},
			{told(text), told(text)},
		} {
			in := Input{Events: events, EarlierSummaries: []*patch.Event{told(text)}, MaxTokens: 500}
			if len(events) == 2 {
				in.Events, in.OtherSummaries = nil, events
			}
			got := Summarise(in)
			if n := patch.EstimateTextTokens(got); n > 500 {
				t.Errorf("%s: %d tokens, of 500", name, n)
			}
		}
	}
}

// Right-to-left text keeps its letters, joiners and marks. Only its bidirectional controls are removed.
func TestRightToLeft(t *testing.T) {
	for text, want := range map[string]string{
		"الرجاء حجز غرفة تطل على البحر بدون إفطار.": "الرجاء حجز غرفة تطل على البحر بدون إفطار.",
		"אני אלרגי לאגוזים\u200f, בבקשה.":           "אני אלרגי לאגוזים\u200f, בבקשה.",
		"می\u200cخواهم بلیت \u2067تهران\u2069 را.":  "می\u200cخواهم بلیت",
	} {
		got := Summarise(Input{Events: []*patch.Event{said("a", "user", text), said("a", "agent", "ok"), filler(20)}, MaxTokens: 300})
		if !strings.Contains(got, want) || strings.ContainsAny(got, "\u2067\u2069\u202e") {
			t.Errorf("of %q: %q", text, got)
		}
	}
}

// A summary quotes whole messages that the agent wrote between calls, but omits sentences that only introduce a call.
func TestKeepsWholeMessages(t *testing.T) {
	got := Summarise(Input{MaxTokens: 400, Events: []*patch.Event{
		said("a", "user", "Mend the import, please."),
		said("a", "agent", "The parser splits at commas within quotes. That loses the articles with a price. Let me look at the writer:"),
		called("1", "bash", map[string]any{"command": "cat writer.py"}), answered("1", "bash", map[string]any{"output": strings.Repeat("line of code here\n", 300)}),
		said("a", "agent", "I replaced the parser, and nothing is lost any more."),
	}})
	if !strings.Contains(got, "The parser splits at commas within quotes. That loses the articles with a price.") || strings.Contains(got, "Let me look") {
		t.Errorf("it says\n%s", got)
	}
}

// A summary keeps the last messages of a long turn.
func TestLastMessagesOfALongTurn(t *testing.T) {
	events := []*patch.Event{said("a", "user", "Sort the crates.")}
	for i := range 40 {
		id := fmt.Sprint(i)
		events = append(events, said("a", "agent", fmt.Sprintf("Crate %d of the Rotterdam shipment holds lenses from Jena, and Bremen wants it on Thursday.", 100+i)),
			called(id, "move", map[string]any{"crate": i}), answered(id, "move", map[string]any{"result": "ok"}))
	}
	got := Summarise(Input{MaxTokens: 400, Events: append(events, said("a", "agent", "All crates are sorted."))})
	for _, crate := range []string{"Crate 137", "Crate 138", "Crate 139"} {
		if !strings.Contains(got, crate) {
			t.Errorf("%s is not in\n%s", crate, got)
		}
	}
}

// A long list of changed files leaves room for the user's words.
func TestManyChangedFiles(t *testing.T) {
	events := []*patch.Event{said("0", "user", "Tidy up."), said("a", "user", "Move the sources. "+strings.Repeat("Helpers of the kitchen go where the helpers of the garden are by now. ", 3)+"\nThe theme of the interface goes to Wolfsburg.\nTools of the workshop go to Ingolstadt.")}
	for i := range 40 {
		id := fmt.Sprint(i)
		events = append(events, called(id, "write", map[string]any{"path": fmt.Sprintf("/srv/moved/workshop%d/engine%d.ts", i, i), "content": "x"}), answered(id, "write", map[string]any{"result": "ok"}))
	}
	got := Summarise(Input{MaxTokens: 300, Events: append(events, said("b", "user", "And now?"), filler(20))})
	for _, want := range []string{"go to Ingolstadt", "engine39.ts"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

// After a check has passed, earlier errors are omitted. A command that only reads test files is not a check.
func TestChecks(t *testing.T) {
	run := func(id, command, output string, code int) []*patch.Event {
		return []*patch.Event{called(id, "bash", map[string]any{"command": command}), answered(id, "bash", map[string]any{"output": output, "exit_code": code})}
	}
	events := append(run("1", "python try.py", "NameError: name 'x' is not defined", 1), run("2", "pip install pytest", "WARNING: running as root", 0)...)
	for _, c := range []struct {
		output string
		code   int
		open   bool
	}{{"41 passed", 0, false}, {"1 failed, 40 passed", 1, true}} {
		got := Summarise(Input{MaxTokens: 400, Events: append(append([]*patch.Event{said("a", "user", "Go on.")}, events...), append(run("3", "pytest -q", c.output, c.code), filler(20))...)})
		if strings.Contains(got, "NameError") != c.open || !strings.Contains(got, c.output) || strings.Contains(got, "WARNING") {
			t.Errorf("%s: it says\n%s", c.output, got)
		}
	}
}

package migrate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
)

type drawnEntry struct {
	parent int // index of the parent, or -1 for a root
	text   string
	meta   bool // the entry has no content

	compaction bool
	keep       int // index of the first kept entry, or -1

	batch int // if the entry has one of several parallel calls of a message: index of the first piece of that message; otherwise -1
}

// pathTo returns the indices of the entries on the path from the root to an entry.
func pathTo(all []drawnEntry, to int) []int {
	var path []int
	for ; to >= 0; to = all[to].parent {
		path = append(path, to)
	}
	slices.Reverse(path)
	return path
}

// visibleNodes returns the entries that an agent would send to the model at an entry. It follows the parents, as
// agents do.
func visibleNodes(all []drawnEntry, at int) []int {
	path := pathTo(all, at)
	last := -1
	for i, n := range path {
		if all[n].compaction {
			last = i
		}
	}
	var seen []int
	if last >= 0 {
		seen = append(seen, path[last])
		if k := slices.Index(path, all[path[last]].keep); k >= 0 {
			for _, n := range path[k:last] {
				if !all[n].compaction {
					seen = append(seen, n)
				}
			}
		}
		path = path[last+1:]
	}
	seen = append(seen, path...)
	// Add the other pieces of messages, and the responses to these pieces.
	for n := range all {
		if first := all[n].batch; first >= 0 && slices.Contains(seen, first) && !slices.Contains(seen, n) {
			seen = append(seen, n)
		}
	}
	if last >= 0 {
		slices.Sort(seen[1:])
	} else {
		slices.Sort(seen)
	}
	return slices.DeleteFunc(seen, func(n int) bool { return all[n].meta })
}

func textsOf(all []drawnEntry, seen []int) []string {
	texts := []string{}
	for _, n := range seen {
		texts = append(texts, all[n].text)
	}
	return texts
}

func visibleTexts(v fold.View) []string {
	texts := []string{}
	for _, e := range v.Events() {
		for _, p := range e.Content().Parts() {
			switch p.Kind {
			case patch.PartCall:
				texts = append(texts, "call "+p.ID)
			case patch.PartResponse:
				texts = append(texts, "result "+p.ID)
			default:
				texts = append(texts, p.Text)
			}
		}
	}
	return texts
}

func line(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text) + "\n"
}

type fields map[string]any

// drawParent draws the parent of the next entry. Most often, it returns the current leaf.
func drawParent(t *rapid.T, n, leaf int) int {
	if rapid.IntRange(0, 3).Draw(t, "back") > 0 {
		return leaf
	}
	return rapid.IntRange(-1, n-1).Draw(t, "parent")
}

// After each line of a pi file, the visible log has the events that pi would show to the model.
func TestPiTrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []drawnEntry
		data := line(fields{"type": "session", "version": 3, "id": "s"})
		for n := range rapid.IntRange(1, 40).Draw(t, "entries") {
			e := drawnEntry{parent: drawParent(t, n, n-1), text: fmt.Sprint("text ", n), keep: -1, batch: -1}
			base := fields{"id": fmt.Sprint("e", n), "parentId": nil, "timestamp": "2026-01-01T00:00:00Z"}
			if e.parent >= 0 {
				base["parentId"] = fmt.Sprint("e", e.parent)
			}
			switch kind := rapid.IntRange(0, 5).Draw(t, "kind"); kind {
			case 0:
				e.meta = true
				base["type"] = "model_change"
			case 1:
				if seen := visibleNodes(all, e.parent); len(seen) > 1 {
					e.compaction, e.keep = true, rapid.SampledFrom(seen[1:]).Draw(t, "keep")
					base["type"], base["summary"], base["firstKeptEntryId"] = "compaction", e.text, fmt.Sprint("e", e.keep)
					break
				}
				fallthrough
			default:
				role := []string{"user", "assistant"}[kind%2]
				base["type"], base["message"] = "message", fields{"role": role, "content": []fields{{"type": "text", "text": e.text}}}
			}
			all = append(all, e)
			data += line(base)
			if n%7 == 0 || rapid.Bool().Draw(t, "look") {
				checkVisibleAt(t, pi, data, textsOf(all, visibleNodes(all, n)))
			}
		}
		checkVisibleAt(t, pi, data, textsOf(all, visibleNodes(all, len(all)-1)))
	})
}

func checkVisibleAt(t *rapid.T, format Format, data string, want []string) {
	records, _ := decodeFile(t, format, []byte(data))
	if got := visibleTexts(foldRecords(t, records)); !slices.Equal(got, want) {
		t.Fatalf("visible are\n%q, want\n%q, of\n%s", got, want, data)
	}
	wantLines(t, []byte(data), records)
}

// After each line of a Claude Code transcript, the visible log has the events that Claude Code would show to the
// model. Messages come in pieces, and each piece is answered separately.
func TestClaudeCodeTrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []drawnEntry
		data := line(fields{"type": "mode", "sessionId": "s"})
		leaf := -1
		add := func(e drawnEntry, l fields) int {
			n := len(all)
			if e.batch == -2 {
				e.batch = n
			}
			l["uuid"], l["sessionId"], l["parentUuid"] = fmt.Sprint("e", n), "s", nil
			if e.parent >= 0 {
				l["parentUuid"] = fmt.Sprint("e", e.parent)
			}
			all = append(all, e)
			if !e.meta {
				leaf = n
			}
			if l["subtype"] == "compact_boundary" {
				l["parentUuid"] = nil
				if e.parent >= 0 {
					l["logicalParentUuid"] = fmt.Sprint("e", e.parent)
				}
			}
			data += line(l)
			return n
		}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			parent := drawParent(t, len(all), len(all)-1)
			n := len(all)
			kind := rapid.IntRange(0, 6).Draw(t, "kind")
			if parent < 0 && (kind%2 == 1 || kind == 2) { // a conversation does not begin with a response
				parent = len(all) - 1
			}
			switch kind {
			case 0:
				add(drawnEntry{parent: parent, meta: true, keep: -1, batch: -1}, fields{"type": "system", "subtype": "turn_duration"})
			case 1:
				if len(visibleNodes(all, parent)) > 0 {
					b := add(drawnEntry{parent: parent, meta: true, keep: -1, batch: -1}, fields{"type": "system", "subtype": "compact_boundary"})
					add(drawnEntry{parent: b, text: fmt.Sprint("text ", b+1), compaction: true, keep: -1, batch: -1},
						fields{"type": "user", "isCompactSummary": true, "message": fields{"role": "user", "content": fmt.Sprint("text ", b+1)}})
					break
				}
				fallthrough
			case 2, 3: // pieces of one message, with a call each
				calls := rapid.IntRange(1, 3).Draw(t, "calls")
				first, at := -2, parent
				var pieces []int
				for i := range calls {
					id := fmt.Sprintf("t%d.%d", n, i)
					at = add(drawnEntry{parent: at, text: "call " + id, keep: -1, batch: first}, fields{"type": "assistant",
						"message": fields{"id": fmt.Sprint("msg", n), "role": "assistant", "content": []fields{{"type": "tool_use", "id": id, "name": "f", "input": fields{}}}}})
					pieces = append(pieces, at)
					first = all[at].batch
				}
				for _, i := range rapid.Permutation(pieces).Draw(t, "answers") {
					id := strings.TrimPrefix(all[i].text, "call ")
					add(drawnEntry{parent: i, text: "result " + id, keep: -1, batch: first}, fields{"type": "user",
						"message": fields{"role": "user", "content": []fields{{"type": "tool_result", "tool_use_id": id, "content": "ok"}}}})
				}
			default:
				role := []string{"user", "assistant"}[kind%2]
				add(drawnEntry{parent: parent, text: fmt.Sprint("text ", n), keep: -1, batch: -1}, fields{"type": role,
					"message": fields{"id": fmt.Sprint("m", n), "role": role, "content": []fields{{"type": "text", "text": fmt.Sprint("text ", n)}}}})
			}
			checkVisibleAt(t, claudeCode, data, textsOf(all, visibleNodes(all, leaf)))
		}
	})
}

// After rollbacks and compactions in a rollout, the visible log has the events that Codex would show to the model.
func TestCodexRollbacks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type step struct {
			prompt bool
			before []string
		}
		var path []step
		seen := []string{}
		data := line(fields{"type": "session_meta", "payload": fields{"id": "s"}})
		for n := range rapid.IntRange(1, 40).Draw(t, "lines") {
			text := fmt.Sprint("text ", n)
			kind := rapid.IntRange(0, 6).Draw(t, "kind")
			before := step{kind <= 2, slices.Clone(seen)}
			switch {
			case kind == 3:
				turns := rapid.IntRange(0, 3).Draw(t, "turns")
				data += line(fields{"type": "event_msg", "payload": fields{"type": "thread_rolled_back", "num_turns": turns}})
				for i := len(path) - 1; i >= 0 && turns > 0; i-- {
					if path[i].prompt {
						seen, turns = path[i].before, turns-1
						path = path[:i]
					}
				}
				continue
			case kind == 4 && len(seen) > 0:
				data += line(fields{"type": "compacted", "payload": fields{"message": text, "replacement_history": []fields{
					{"type": "message", "role": "user", "content": []fields{{"type": "input_text", "text": text}}},
				}}})
				seen = []string{text}
			default:
				role := map[bool]string{true: "user", false: "assistant"}[before.prompt]
				data += line(fields{"type": "response_item", "payload": fields{"type": "message", "role": role, "content": []fields{{"type": "input_text", "text": text}}}})
				seen = append(slices.Clone(seen), text)
			}
			path = append(path, before)
			checkVisibleAt(t, codex, data, seen)
		}
		checkVisibleAt(t, codex, data, seen)
	})
}

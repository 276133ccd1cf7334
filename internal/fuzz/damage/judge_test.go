package damage

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

func (t *try) judge(q question, a answer) {
	t.count("answers", 1)
	if a.Err != "" && !a.Absent {
		if !t.older || q.What != "Search" { // the search index in memory may have content that an earlier state lacks
			t.failed++
			t.lastError = a.Err
		}
		t.count("errors", 1)
		switch {
		case !a.Corrupt, !strings.Contains(a.Err, q.Key.String()) && q.Key.Validate() == nil:
			t.wrong("%s: %s", q, a.Err)
		case t.harm.current && !t.harm.free && t.kind != "" && !t.harm.sessions[q.Key] && !t.older && t.logs[q.Key] != nil:
			if strings.HasPrefix(q.What, "Get") && t.harm.shared || q.What == "List" && t.harm.listing {
				break
			}
			t.wrong("%s, which the damage has not touched: %s", q, a.Err)
		}
	}
	if q.What == whole || q.What == tail {
		t.judgeLog(q, a)
		return
	}
	if a.Err != "" && !a.Absent || t.changed(q.Key) {
		return
	}
	if strings.HasPrefix(q.What, "Get, ") && (a.Absent || q.What == "Get, app:new") { // [try.write] set it
		return
	}
	want, known := t.Right[q]
	if known && a.Text == want {
		return
	}
	if t.older {
		if a.Absent && q.What == "List" { // both buckets of the directory may be as of an earlier commit
			t.count("answers of an earlier state", 1)
			return
		}
		for _, before := range t.Before {
			if want, known := before[q]; known && want == a.Text {
				t.count("answers of an earlier state", 1)
				return
			}
		}
		if strings.HasPrefix(q.What, "Get, ") { // of any commit
			t.count("answers of an earlier state", 1)
			return
		}
		if strings.HasPrefix(q.What, "Get") && slices.ContainsFunc(t.Before, func(m map[question]string) bool { return m[q] == "absent" }) {
			return
		}
	}
	t.wrong("%s: %s, want %s", q, a.Text, want)
}

// judgeLog checks the answer to a read of a log. Each record must have been written there. If there was no
// error, no record may be missing.
func (t *try) judgeLog(q question, a answer) {
	if a.Absent {
		if t.logs[q.Key] != nil && !t.gone[q.Key] && !t.wasAbsent(q) {
			t.wrong("%s: %s", q, a.Err)
		}
		return
	}
	from := uint64(1)
	if q.What == tail {
		from = 3
	}
	lines := strings.Split(strings.TrimSuffix(a.Text, "\n"), "\n")
	if a.Text == "" {
		lines = nil
	}
	for i, got := range lines {
		seq := from + uint64(i)
		if text, there := t.logs[q.Key][seq]; there && got == fmt.Sprint(seq, " ", short(text)) {
			continue
		}
		if !t.older || !t.wasLine(q, got) {
			t.wrong("%s: at place %d it has %s, and was %s", q, seq, got, short(t.logs[q.Key][seq]))
			return
		}
	}
	switch last := from + uint64(len(lines)) - 1; {
	case a.Err != "" || last >= t.last[q.Key]:
	case t.older && t.wasText(q, a.Text):
		t.count("answers of an earlier state", 1)
	default:
		t.wrong("%s: it ends at record %d of %d, and no error", q, last, t.last[q.Key])
	}
}

func (t *try) wasAbsent(q question) bool {
	return t.older && slices.ContainsFunc(t.Before, func(m map[question]string) bool { return m[q] == "absent" })
}

func (t *try) wasText(q question, text string) bool {
	return slices.ContainsFunc(t.Before, func(m map[question]string) bool { return m[q] == text })
}

func (t *try) wasLine(q question, line string) bool {
	return slices.ContainsFunc(t.Before, func(m map[question]string) bool { return strings.Contains("\n"+m[q], "\n"+line+"\n") })
}

// kept checks that the records that were intact before the writes are unchanged after them.
func (t *try) kept(before *tree) {
	data, err := os.ReadFile(t.path)
	if err != nil {
		t.wrong("%v", err)
		return
	}
	now := map[string]bool{} // damage may have made two keys equal
	for _, row := range treeOf(data).rows {
		if row.bucket == "records" {
			now[row.key+row.value] = true
		}
	}
	at := map[string]int{} // offsets of the records in use; an earlier state may have copies elsewhere
	for _, row := range t.tree.rows {
		if row.bucket == "records" {
			at[row.key] = row.from
		}
	}
	lost := 0
	for _, row := range before.rows {
		n := numberOf(row.key)
		if row.bucket != "records" || row.from != at[row.key] || !t.Live[n] || t.gone[t.Keys[n]] || row.value != t.Forms[n][numberOf(row.key[min(8, len(row.key)):])] || len(row.key) != 16 {
			continue
		}
		t.count("records kept", 1)
		if !now[row.key+row.value] {
			lost++
		}
	}
	if lost > 0 {
		t.wrong("%d records were intact after the damage, and are not after the writes", lost)
	}
}

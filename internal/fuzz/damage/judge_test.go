package damage

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

func (t *trial) checkResult(q query, a result) {
	t.count("answers", 1)
	if a.Err != "" && !a.Absent {
		// The search index in memory may have content that an earlier state of the file lacks.
		if !t.mayBeOlder || q.What != "Search" {
			t.failed++
			t.lastError = a.Err
		}
		t.count("errors", 1)
		switch {
		case !a.Corrupt, !strings.Contains(a.Err, q.Key.String()) && q.Key.Validate() == nil:
			t.failf("%s: %s", q, a.Err)
		case t.harm.current && !t.harm.free && t.kind != "" && !t.harm.sessions[q.Key] && !t.mayBeOlder && t.logs[q.Key] != nil:
			if strings.HasPrefix(q.What, "Get") && t.harm.shared || q.What == "List" && t.harm.listing {
				break
			}
			t.failf("%s, which the damage has not touched: %s", q, a.Err)
		}
	}
	if q.What == whole || q.What == tail {
		t.checkLog(q, a)
		return
	}
	if a.Err != "" && !a.Absent || t.hasChanged(q.Key) {
		return
	}
	if strings.HasPrefix(q.What, "Get, ") && (a.Absent || q.What == "Get, app:new") { // the test itself set app:new, in [trial.write]
		return
	}
	want, known := t.Want[q]
	if known && a.Text == want {
		return
	}
	if t.mayBeOlder {
		if a.Absent && q.What == "List" { // both buckets of the directory may have the content of an earlier commit
			t.count("answers of an earlier state", 1)
			return
		}
		for _, before := range t.Before {
			if want, known := before[q]; known && want == a.Text {
				t.count("answers of an earlier state", 1)
				return
			}
		}
		if strings.HasPrefix(q.What, "Get, ") { // the value may be from any commit
			t.count("answers of an earlier state", 1)
			return
		}
		if strings.HasPrefix(q.What, "Get") && slices.ContainsFunc(t.Before, func(m map[query]string) bool { return m[q] == "absent" }) {
			return
		}
	}
	t.failf("%s: %s, want %s", q, a.Text, want)
}

// checkLog checks the result of reading a log. Each record in it must have been written to that log. If there was no
// error, no record may be missing.
func (t *trial) checkLog(q query, a result) {
	if a.Absent {
		if t.logs[q.Key] != nil && !t.deleted[q.Key] && !t.wasAbsent(q) {
			t.failf("%s: %s", q, a.Err)
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
		if text, ok := t.logs[q.Key][seq]; ok && got == fmt.Sprint(seq, " ", shorten(text)) {
			continue
		}
		if !t.mayBeOlder || !t.hadLine(q, got) {
			t.failf("%s: at place %d it has %s, and was %s", q, seq, got, shorten(t.logs[q.Key][seq]))
			return
		}
	}
	switch last := from + uint64(len(lines)) - 1; {
	case a.Err != "" || last >= t.last[q.Key]:
	case t.mayBeOlder && t.hadText(q, a.Text):
		t.count("answers of an earlier state", 1)
	default:
		t.failf("%s: it ends at record %d of %d, and no error", q, last, t.last[q.Key])
	}
}

func (t *trial) wasAbsent(q query) bool {
	return t.mayBeOlder && slices.ContainsFunc(t.Before, func(m map[query]string) bool { return m[q] == "absent" })
}

func (t *trial) hadText(q query, text string) bool {
	return slices.ContainsFunc(t.Before, func(m map[query]string) bool { return m[q] == text })
}

func (t *trial) hadLine(q query, line string) bool {
	return slices.ContainsFunc(t.Before, func(m map[query]string) bool { return strings.Contains("\n"+m[q], "\n"+line+"\n") })
}

// checkIntactKept checks that the writes have not changed the records that were intact before.
func (t *trial) checkIntactKept(before *tree) {
	data, err := os.ReadFile(t.path)
	if err != nil {
		t.failf("%v", err)
		return
	}
	now := map[string]bool{} // keys followed by their values, because damage may have made two keys equal
	for _, row := range treeOf(data).rows {
		if row.bucket == "records" {
			now[row.key+row.value] = true
		}
	}
	at := map[string]int{} // key: key of the row; value: offset of the record in use, because an earlier state may have copies elsewhere
	for _, row := range t.tree.rows {
		if row.bucket == "records" {
			at[row.key] = row.from
		}
	}
	lost := 0
	for _, row := range before.rows {
		n := numberOf(row.key)
		if row.bucket != "records" || row.from != at[row.key] || !t.Live[n] || t.deleted[t.Keys[n]] || row.value != t.Forms[n][numberOf(row.key[min(8, len(row.key)):])] || len(row.key) != 16 {
			continue
		}
		t.count("records kept", 1)
		if !now[row.key+row.value] {
			lost++
		}
	}
	if lost > 0 {
		t.failf("%d records were intact after the damage, and are not after the writes", lost)
	}
}

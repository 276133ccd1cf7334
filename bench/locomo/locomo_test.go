package locomo_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/patchlog-dev/patchlog/bench/locomo"
	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
)

// conversation is a small invented conversation in the JSON form of LoCoMo.
const conversation = `{
	"speaker_a": "Ann", "speaker_b": "Ben",
	"session_1_date_time": "1:56 pm on 8 May, 2023",
	"session_1": [
		{"speaker": "Ann", "dia_id": "D1:1", "text": "My boat is called Pelican."},
		{"speaker": "Ben", "dia_id": "D1:2", "text": "Look!", "blip_caption": "a photo of a lighthouse"}
	],
	"session_2_date_time": "9:05 am on 12 June, 2023",
	"session_2": [{"speaker": "Ann", "dia_id": "D2:1", "text": "I painted the hull."}],
	"session_3_date_time": "9:05 am on 13 June, 2023",
	"qa": [
		{"question": "What is the boat called?", "answer": "Pelican", "evidence": ["D1:1"], "category": 4},
		{"question": "What did they do?", "answer": "", "evidence": ["D1:02; D2:1"], "category": 1},
		{"question": "Who is Cid?", "answer": "", "evidence": [], "category": 3},
		{"question": "Who is Dan?", "answer": "", "evidence": ["D7:1"], "category": 3}
	]
}`

func TestRead(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "1.json"), []byte(conversation), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(locomo.Variable, dir)
	all := locomo.Read(t)
	if len(all) != 1 || len(all[0].Turns) != 3 {
		t.Fatalf("%+v", all)
	}
	c := all[0]
	want := []locomo.Question{
		{Text: "What is the boat called?", Category: locomo.SingleHop, Evidence: []uint64{1}},
		{Text: "What did they do?", Category: locomo.MultiHop, Evidence: []uint64{2, 3}},
	}
	if !reflect.DeepEqual(c.Questions, want) {
		t.Errorf("questions are %+v, want %+v", c.Questions, want)
	}
	if second := c.Turns[1]; identifiers.Text(second.Event) != "Look!\n" || second.Seq != 2 || second.Event.Author() != "Ben" {
		t.Errorf("the second turn is %d: %v", second.Seq, second.Event)
	}
	if at := c.Turns[2].Event.Timestamp(); at.Format("2006-01-02 15:04") != "2023-06-12 09:05" {
		t.Errorf("the time of the third turn is %v", at)
	}
}

// Measure counts at most ten results per question. It asks each question of the index of its own conversation.
func TestMeasure(t *testing.T) {
	eleven := []uint64{9, 8, 7, 6, 5, 4, 3, 2, 11, 10, 1}
	all := []locomo.Conversation{
		{Turns: make([]patch.Record, 11), Questions: []locomo.Question{
			{Text: "a", Category: locomo.MultiHop, Evidence: []uint64{1}},
			{Text: "b", Category: locomo.MultiHop, Evidence: []uint64{1, 10}},
		}},
		{Turns: make([]patch.Record, 2), Questions: []locomo.Question{{Text: "c", Category: locomo.Temporal, Evidence: []uint64{2}}}},
	}
	hits := locomo.Measure(all, func(turns []patch.Record) func(string) []uint64 {
		return func(string) []uint64 { return eleven[len(eleven)-len(turns):] }
	})
	for of, want := range map[locomo.Category]float64{locomo.All: 1.0 / 3, locomo.MultiHop: 1.0 / 2, locomo.Temporal: 0, locomo.SingleHop: 0} {
		if got := hits.Share(of); got != want {
			t.Errorf("share of %v is %v, want %v", of, got, want)
		}
	}
}

// BenchmarkTypos reports the share of questions whose evidence is found, without a typo and with one typo per
// question. The typo is in a word of at least five letters that is not the first word.
func BenchmarkTypos(b *testing.B) {
	all := locomo.Read(b)
	for b.Loop() {
		b.ReportMetric(100*measure(all), "%-as-asked")
		b.ReportMetric(100*measure(misspelled(all, rand.New(rand.NewPCG(1, 1)))), "%-one-typo")
	}
}

func measure(all []locomo.Conversation) float64 {
	return locomo.Measure(all, func(turns []patch.Record) func(string) []uint64 {
		x := new(recall.Index)
		for _, r := range turns {
			x.Add(r)
		}
		return func(question string) []uint64 { return locomo.Find(x, question) }
	}).Share(locomo.All)
}

// misspelled returns the conversations with one typo per question: a character omitted, added, replaced or swapped.
func misspelled(all []locomo.Conversation, r *rand.Rand) []locomo.Conversation {
	all = slices.Clone(all)
	for i := range all {
		all[i].Questions = slices.Clone(all[i].Questions)
		for j := range all[i].Questions {
			q := &all[i].Questions[j]
			words := strings.Fields(q.Text)
			var long []int
			for k := 1; k < len(words); k++ {
				if len(words[k]) >= 5 {
					long = append(long, k)
				}
			}
			if len(long) == 0 {
				continue
			}
			k := long[r.IntN(len(long))]
			word, letter := []byte(words[k]), byte('a'+r.IntN(26))
			at := 1 + r.IntN(len(word)-3)
			switch r.IntN(4) {
			case 0:
				word = slices.Delete(word, at, at+1)
			case 1:
				word = slices.Insert(word, at, letter)
			case 2:
				word[at] = letter
			case 3:
				word[at], word[at+1] = word[at+1], word[at]
			}
			words[k] = string(word)
			q.Text = strings.Join(words, " ")
		}
	}
	return all
}

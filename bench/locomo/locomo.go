// Package locomo measures whether an index of a conversation finds the messages that answer questions about it. It uses
// LoCoMo (Maharana et al., Evaluating Very Long-Term Conversational Memory of LLM Agents, 2024). LoCoMo has ten
// conversations of two people over months, with about 600 messages and 200 questions each.
//
// The data is licensed CC BY-NC 4.0, so the repository does not contain it. The environment variable [Variable] names
// its folder.
package locomo

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/patchlog-dev/patchlog/patch"
)

// Variable is the environment variable that names the folder with the conversations. The folder contains one JSON file
// per conversation, from data/multimodal_dialog/locomo10_v2 in https://github.com/snap-research/locomo.
const Variable = "PATCHLOG_LOCOMO"

// Conversation is a conversation of two people, with questions about it.
type Conversation struct {
	Turns     []patch.Record // the messages, with seqs from 1; their authors are the speakers
	Questions []Question
}

// Question is a question about a conversation.
type Question struct {
	Text     string
	Category Category
	Evidence []uint64 // seqs of the messages with the answer; never empty
}

// Category is a kind of question. The values are LoCoMo's numbers.
type Category int

// The categories of questions. [All] stands for every question. The evidence of an adversarial question is the
// message that the question misrepresents.
const (
	All Category = iota
	MultiHop
	Temporal
	OpenDomain
	SingleHop
	Adversarial
	categories
)

// String returns the name of the category in lower case.
func (c Category) String() string {
	switch c {
	case All:
		return "all"
	case MultiHop:
		return "multi-hop"
	case Temporal:
		return "temporal"
	case OpenDomain:
		return "open-domain"
	case SingleHop:
		return "single-hop"
	case Adversarial:
		return "adversarial"
	}
	return fmt.Sprintf("category %d", int(c))
}

// Read returns the conversations in the order of their file names. It omits captions of photos, and questions without
// evidence in the conversation. If [Variable] is not set, the test is skipped. If the folder has no conversations, the
// test fails.
func Read(tb testing.TB) []Conversation {
	tb.Helper()
	folder := os.Getenv(Variable)
	if folder == "" {
		tb.Skipf("skipped: %s does not name the folder of LoCoMo's conversations", Variable)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(files) == 0 {
		tb.Fatalf("%s is %q, which has no conversation: %v", Variable, folder, err)
	}
	all := make([]Conversation, len(files))
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		if all[i], err = parse(text); err != nil {
			tb.Fatalf("%s: %v", file, err)
		}
	}
	return all
}

func parse(text []byte) (c Conversation, err error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return c, err
	}
	seqs := map[string]uint64{}
	for session := 1; members[fmt.Sprint("session_", session)] != nil; session++ {
		if err := c.addSession(members, fmt.Sprint("session_", session), seqs); err != nil {
			return c, fmt.Errorf("session %d: %w", session, err)
		}
	}
	var questions []struct {
		Question string
		Evidence []string
		Category Category
	}
	if err := json.Unmarshal(members["qa"], &questions); err != nil {
		return c, fmt.Errorf("qa: %w", err)
	}
	for _, q := range questions {
		question := Question{Text: q.Question, Category: q.Category}
		if q.Category < MultiHop || q.Category >= categories {
			return c, fmt.Errorf("qa: %q is of category %d", q.Question, q.Category)
		}
		for _, id := range turnIDs.FindAllStringSubmatch(strings.Join(q.Evidence, " "), -1) {
			if seq, ok := seqs[turnID(id)]; ok {
				question.Evidence = append(question.Evidence, seq)
			}
		}
		if len(question.Evidence) > 0 {
			c.Questions = append(c.Questions, question)
		}
	}
	return c, nil
}

// addSession adds the messages of a session. It records the seq of each message by id in seqs.
func (c *Conversation) addSession(members map[string]json.RawMessage, name string, seqs map[string]uint64) error {
	var turns []struct {
		Speaker, Text string
		ID            string `json:"dia_id"`
	}
	if err := json.Unmarshal(members[name], &turns); err != nil {
		return err
	}
	var date string
	if err := json.Unmarshal(members[name+"_date_time"], &date); err != nil {
		return fmt.Errorf("date: %w", err)
	}
	at, err := time.Parse("3:04 pm on 2 January, 2006", date)
	if err != nil {
		return err
	}
	for _, t := range turns {
		e, err := patch.NewEvent(patch.Fields{ID: "turn", Author: t.Speaker, Content: patch.Text("user", t.Text), Timestamp: at})
		if err != nil {
			return err
		}
		seq := uint64(len(c.Turns) + 1)
		c.Turns = append(c.Turns, patch.Record{Seq: seq, Event: e})
		id := turnIDs.FindStringSubmatch(t.ID)
		if id == nil {
			return fmt.Errorf("%q is no id of a turn", t.ID)
		}
		seqs[turnID(id)] = seq
	}
	return nil
}

// turnIDs matches the ids of messages, which name the session and the message. Some strings contain several ids.
var turnIDs = regexp.MustCompile(`D(\d+):(\d+)`)

// turnID returns the id of a match without leading zeros.
func turnID(id []string) string {
	session, _ := strconv.Atoi(id[1])
	turn, _ := strconv.Atoi(id[2])
	return fmt.Sprintf("D%d:%d", session, turn)
}

package adk

import (
	"encoding/json"
	"math"
	"reflect"
	"time"

	"google.golang.org/adk/v2/session"

	"github.com/patchlog-dev/patchlog/patch"
)

// recordName is the name of ADK's compaction record in an event's actions. ADK has the
// field in versions whose runner compacts.
const recordName = "compaction"

// recordField is the index of the record's field in ADK's type, or below 0 if that has none.
var recordField = func() int {
	for _, f := range moreActions {
		if f.name == recordName {
			return f.index
		}
	}
	return -1
}()

// isRecord reports whether an event of ADK is a compaction record.
func isRecord(e *session.Event) bool {
	return recordField >= 0 && !reflect.ValueOf(e.Actions).Field(recordField).IsZero()
}

// decodeActions stores an event's actions. Records of ADK's own it gets as they were; of one
// that another ADK wrote, with times in Unix seconds, the times in its own form. If such an
// event has a content, it is a summary that stands where it belongs, as compaction puts them
// into a log: to ADK it is an event like others, lest ADK take it for a record that is still to
// be applied, or leave it out where its own compaction is off.
func decodeActions(p *patch.Event, into *session.EventActions) error {
	err := decode(p, "actions", into)
	if err == nil || recordField < 0 || !p.IsSummary() {
		return err
	}
	text, _ := p.Field("actions")
	if text = withGoTimes(text); text == nil {
		return err
	}
	*into = session.EventActions{}
	if json.Unmarshal(text, into) != nil {
		return err
	}
	if p.HasContent() {
		reflect.ValueOf(into).Elem().Field(recordField).SetZero()
	}
	return nil
}

// withGoTimes returns actions whose record has its times by RFC 3339, as ADK for Go reads
// them, or nil if it has none of the shape.
func withGoTimes(actions json.RawMessage) json.RawMessage {
	var all, record map[string]json.RawMessage
	if json.Unmarshal(actions, &all) != nil || json.Unmarshal(all[recordName], &record) != nil {
		return nil
	}
	goTimes(record, "startTimestamp", "endTimestamp")
	var excluded []map[string]json.RawMessage
	if json.Unmarshal(record["excludedEvents"], &excluded) == nil {
		for _, e := range excluded {
			goTimes(e, "timestamp")
		}
		record["excludedEvents"], _ = json.Marshal(excluded)
	}
	var err error
	if all[recordName], err = json.Marshal(record); err != nil {
		return nil
	}
	text, _ := json.Marshal(all)
	return text
}

// goTimes turns fields in Unix seconds into times by RFC 3339, to the microsecond as ADK
// for Python has them.
func goTimes(fields map[string]json.RawMessage, names ...string) {
	for _, name := range names {
		var seconds *float64
		if text, ok := fields[name]; !ok || json.Unmarshal(text, &seconds) != nil || seconds == nil {
			continue
		}
		if micros := math.Round(*seconds * 1e6); math.Abs(micros) < 1<<62 {
			if text, err := json.Marshal(time.UnixMicro(int64(micros)).UTC()); err == nil {
				fields[name] = text
			}
		}
	}
}

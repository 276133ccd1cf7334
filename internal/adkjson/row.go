package adkjson

import (
	"fmt"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/internal/jsonvalue"
	"github.com/patchlog-dev/patchlog/patch"
)

// rowOwner is the app, user and session of a table row. For a line that is not a row, it is the zero value.
type rowOwner [3]string

// unwrapRow returns the event in a row of a table of ADK for Python. A row is a JSON object. Its field event_data
// contains the event, as an object or as a string with JSON. The other fields repeat the id, the invocation and the
// time of the event, and name its session. If the row is malformed, the error names the field. If text is not a row,
// unwrapRow returns text unchanged.
func unwrapRow(text []byte) (event []byte, owner rowOwner, err error) {
	for name := range jsonvalue.Members(text) {
		if name == "patchType" || name == "patch_type" {
			return text, owner, nil
		}
	}
	event = jsonvalue.Member(text, "event_data")
	if event == nil {
		return text, owner, rejectNonEvent(text)
	}
	switch jsonvalue.KindOf(event) {
	case jsonvalue.String:
		if event, err = compact([]byte(jsonvalue.Unquote(event))); err != nil {
			return nil, owner, withFieldPrefix("event_data", err)
		}
	case jsonvalue.Object:
	default:
		return nil, owner, fieldErr("event_data", "want an object, or a string with its JSON, not %s", clip(event))
	}
	if jsonvalue.KindOf(event) != jsonvalue.Object {
		return nil, owner, fieldErr("event_data", "want an event object, not %s", clip(event))
	}
	if jsonvalue.Member(event, "event_data") != nil {
		return nil, owner, fieldErr("event_data/event_data", "an event in a row is not a row")
	}
	b := []byte{'{'}
	for column, v := range jsonvalue.Members(text) {
		at := slices.Index([]string{"app_name", "user_id", "session_id"}, column)
		name := map[string]string{"id": "id", "invocation_id": "invocationId", "timestamp": "timestamp"}[column]
		switch {
		case column == "event_data":
		case at >= 0 && jsonvalue.KindOf(v) == jsonvalue.String:
			owner[at] = jsonvalue.Unquote(v)
		case at >= 0 || name == "":
			return nil, owner, fieldErr(jsonvalue.Step(column), "besides event_data, a row can have only the columns of ADK's table: the strings app_name, user_id and session_id, and id, invocation_id and timestamp")
		default:
			repeated := jsonvalue.Member(event, name)
			if repeated == nil {
				repeated = jsonvalue.Member(event, column)
			}
			switch {
			case jsonvalue.KindOf(v) == jsonvalue.Null:
			case repeated == nil:
				b = append(jsonvalue.AppendKey(b, name), v...)
			case name != "timestamp" && !jsonvalue.Equal(v, repeated): // the column timestamp has no time zone, so it is not compared
				return nil, owner, fieldErr(column, "the column has %s, but event_data has %s", clip(v), clip(repeated))
			}
		}
	}
	for name, v := range jsonvalue.Members(event) {
		b = append(jsonvalue.AppendKey(b, name), v...)
	}
	return append(b, '}'), owner, nil
}

// rejectNonEvent returns an error for objects that are not events. Package patch would accept their fields as
// unknown fields of an event.
func rejectNonEvent(text []byte) error {
	const olderColumn = "long_running_tool_ids_json"
	if jsonvalue.Member(text, olderColumn) != nil {
		return fieldErr(olderColumn, "this is a row of an older version of ADK for Python, whose actions are not JSON; run 'adk migrate session' on the database first")
	}
	if jsonvalue.KindOf(jsonvalue.Member(text, "events")) == jsonvalue.Array {
		for _, name := range []string{"lastUpdateTime", "last_update_time"} {
			if jsonvalue.Member(text, name) != nil {
				return fieldErr("events", "this is a session of ADK as one object; write each of its events on its own line")
			}
		}
	}
	return nil
}

// withFieldPrefix adds a prefix to the field that an error names.
func withFieldPrefix(field string, err error) error {
	if e, ok := err.(*patch.FieldError); ok {
		return &patch.FieldError{Field: strings.TrimSuffix(field+"/"+e.Field, "/"), Problem: e.Problem}
	}
	return err
}

func (o rowOwner) String() string {
	return fmt.Sprintf("app %q, user %q, session %q", o[0], o[1], o[2])
}

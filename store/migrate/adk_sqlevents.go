package migrate

import (
	"encoding/json"
	"fmt"

	"github.com/patchlog-dev/patchlog/internal/adkjson"
	"github.com/patchlog-dev/patchlog/patch"
)

// field is a JSON member of an event, with the name of its column in the events table. The function read returns the
// JSON of the member, or nil to omit the member.
type field struct {
	name, column string
	read         func(cell any) (json.RawMessage, error)
}

// goFields are the columns of ADK for Go. Empty values such as false become no members, as in ADK for Go.
var goFields = []field{
	{"id", "id", textJSON}, {"invocationId", "invocation_id", textJSON}, {"author", "author", textJSON},
	{"branch", "branch", textJSON}, {"isolationScope", "isolation_scope", textJSON},
	{"errorCode", "error_code", textJSON}, {"errorMessage", "error_message", textJSON},
	{"timestamp", "timestamp", timeJSON},
	{"content", "content", jsonCell}, {"actions", "actions", actionsJSON},
	{"groundingMetadata", "grounding_metadata", jsonCell}, {"citationMetadata", "citation_metadata", jsonCell},
	{"usageMetadata", "usage_metadata", jsonCell}, {"customMetadata", "custom_metadata", jsonCell},
	{"longRunningToolIds", "long_running_tool_ids_json", jsonCell}, {"routes", "routes_json", jsonCell},
	{"output", "output_json", jsonCell}, {"nodeInfo", "node_info_json", jsonCell}, {"requestedInput", "requested_input_json", jsonCell},
	{"partial", "partial", boolJSON}, {"turnComplete", "turn_complete", boolJSON}, {"interrupted", "interrupted", boolJSON},
}

// pythonFields are the columns of ADK for Python. The column event_data has the whole event. The other columns
// repeat some of its fields, including the time, but without the time's zone.
var pythonFields = []field{
	{"event_data", "event_data", eventDataJSON}, {"id", "id", textJSON}, {"invocation_id", "invocation_id", textJSON}, {"timestamp", "timestamp", timeJSON},
}

func actionsJSON(cell any) (json.RawMessage, error) {
	if isPickled(cell) {
		return nil, pickledError()
	}
	return jsonCell(cell)
}

func eventDataJSON(cell any) (json.RawMessage, error) {
	data, err := jsonCell(cell)
	if err == nil && data == nil {
		err = fmt.Errorf("%w: the value is missing", patch.ErrInvalid)
	}
	return data, err
}

func (s *SQL) fields() []field {
	if s.python {
		return pythonFields
	}
	return goFields
}

// parseEventRow makes an event from a row. It reports whether it replaced text that was not Unicode.
func parseEventRow(fields []field, cells map[string]any) (*patch.Event, bool, error) {
	var object []byte
	for _, f := range fields {
		value, err := f.read(cells[f.column])
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", f.column, err)
		}
		if value != nil {
			object = fmt.Appendf(object, ",%q:%s", f.name, value)
		}
	}
	if object == nil {
		return nil, false, fmt.Errorf("%w: the row is empty", patch.ErrInvalid)
	}
	object[0] = '{'
	object, repaired := toValidUnicode(append(object, '}'))
	e, err := adkjson.ParseEvent(object)
	return e, repaired, err
}

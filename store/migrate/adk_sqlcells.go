package migrate

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"time"

	"github.com/patchlog-dev/patchlog/patch"
)

// text returns a cell's text; NULL becomes "".
func text(cell any) (string, error) {
	switch v := cell.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case []byte:
		return string(v), nil
	}
	return "", fmt.Errorf("%w: want a text, not %v", patch.ErrInvalid, cell)
}

// jsonOf returns a cell's JSON, or nil for NULL, an empty text and null.
func jsonOf(cell any) (json.RawMessage, error) {
	t, err := text(cell)
	if err != nil || t == "" {
		return nil, err
	}
	if !json.Valid([]byte(t)) {
		return nil, fmt.Errorf("%w: %q is not JSON", patch.ErrInvalid, clip(t))
	}
	if t == "null" {
		return nil, nil
	}
	return json.RawMessage(t), nil
}

// textJSON returns a text as JSON, or nil if it is empty.
func textJSON(cell any) (json.RawMessage, error) {
	t, err := text(cell)
	if err != nil || t == "" {
		return nil, err
	}
	return json.Marshal(t)
}

// timeJSON returns a cell's time as JSON, or nil for NULL.
func timeJSON(cell any) (json.RawMessage, error) {
	t, err := timeOf(cell)
	if err != nil || cell == nil {
		return nil, err
	}
	return json.Marshal(t)
}

// truthJSON returns true as JSON, or nil for false and NULL.
func truthJSON(cell any) (json.RawMessage, error) {
	switch cell {
	case nil, false, int64(0), float64(0):
		return nil, nil
	}
	switch cell.(type) {
	case bool, int64, float64:
		return json.RawMessage("true"), nil
	}
	return nil, fmt.Errorf("%w: want a boolean, not %v", patch.ErrInvalid, cell)
}

// stateOf returns the members of a state, with a prefix added to their keys.
func stateOf(cell any, prefix string) (map[string]patch.Value, error) {
	t, err := jsonOf(cell)
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	if t == nil {
		return nil, nil
	}
	t, _ = mend(t)
	value, err := patch.ParseValue(t)
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	members := value.Members()
	if members == nil {
		return nil, fmt.Errorf("%w: state: want an object, not %q", patch.ErrInvalid, clip(string(t)))
	}
	if prefix == "" {
		return members, nil
	}
	prefixed := make(map[string]patch.Value, len(members))
	for name, v := range members {
		prefixed[prefix+name] = v
	}
	return prefixed, nil
}

// Formats in which SQLite's drivers for Go and Python write times. A time without a zone is in UTC.
var timeForms = []string{
	"2006-01-02 15:04:05.999999999-07:00",
	"2006-01-02T15:04:05.999999999Z07:00",
	"2006-01-02 15:04:05.999999999 -0700 MST",
	"2006-01-02 15:04:05.999999999 -0700",
	"2006-01-02 15:04:05.999999999",
	"2006-01-02T15:04:05.999999999",
	"2006-01-02 15:04",
	"2006-01-02",
}

// The monotonic clock reading that some drivers write after a time.
var monotonic = regexp.MustCompile(` m=[+-][0-9.]+$`)

// timeOf returns a cell's time; NULL becomes the zero time. Numbers are Unix seconds.
func timeOf(cell any) (time.Time, error) {
	switch v := cell.(type) {
	case nil:
		return time.Time{}, nil
	case time.Time:
		return v.UTC(), nil
	case int64:
		return epoch(float64(v))
	case float64:
		return epoch(v)
	}
	t, err := text(cell)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: want a time, not %v", patch.ErrInvalid, cell)
	}
	t = monotonic.ReplaceAllString(t, "")
	for _, form := range timeForms {
		if at, err := time.Parse(form, t); err == nil {
			return at.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%w: %q is no time", patch.ErrInvalid, clip(t))
}

// epoch converts Unix seconds to a time, with the microsecond precision of a float64.
func epoch(seconds float64) (time.Time, error) {
	const first, last = -62135596800, 253402300799 // the years 1 to 9999
	if !(seconds >= first && seconds <= last) {
		return time.Time{}, fmt.Errorf("%w: %v seconds since 1970 is no time", patch.ErrInvalid, seconds)
	}
	return time.UnixMicro(int64(math.Round(seconds * 1e6))).UTC(), nil
}

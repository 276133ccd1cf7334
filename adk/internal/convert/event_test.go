package convert

import (
	"reflect"
	"testing"
)

// Events keep the fields that newer ADK versions add to their types.
func TestFieldsOfNewerVersions(t *testing.T) {
	type Response struct {
		Content string `json:"content"`
		Voice   string `json:"voice"`
	}
	type Event struct {
		Response
		ID        string `json:"id"`
		Mood      string `json:"mood,omitempty"`
		NotInJSON int    `json:"-"`
		own       int
	}
	_ = Event{own: 1}
	for _, c := range []struct{ of, but, want string }{{"Event", "id", "mood"}, {"Response", "content", "voice"}} {
		fields := jsonFieldsExcept(map[string]reflect.Type{"Event": reflect.TypeFor[Event](), "Response": reflect.TypeFor[Response]()}[c.of], c.but)
		if len(fields) != 1 || fields[0].name != c.want {
			t.Errorf("%s has %v, want %s", c.of, fields, c.want)
		}
	}
}

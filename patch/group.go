package patch

import (
	"unicode/utf8"

	"github.com/patchlog-dev/patchlog/internal/jsontext"
)

// groupName is the field that names a patch's group. It stands among the other fields,
// as it came: logs had such fields before they had a meaning, and their records keep
// their bytes. A regular event may have a field of this name.
const groupName = "group"

// Group returns the id of the group that the patch belongs to, or "" if it belongs to
// none. Patches of a group mean one thing together: they are logged in one batch, and
// taken back together.
func (p *PatchEvent) Group() string {
	if text := p.groupText(); text != nil && jsontext.KindOf(text) == jsontext.String {
		return jsontext.Unquote(text)
	}
	return ""
}

// WithGroup returns a copy that belongs to the group with the given id, which its
// author chooses and no other group of the log has; "" is none.
func (p *PatchEvent) WithGroup(id string) *PatchEvent {
	return p.set(groupName, func(p *PatchEvent) {
		if id != "" {
			p.members = append(p.members[:len(p.members):len(p.members)], member{groupName, jsontext.AppendQuote(nil, id)})
		}
	})
}

func (p *PatchEvent) groupText() []byte {
	if text := findMember(p.members, groupName); string(text) != "null" {
		return text
	}
	return nil
}

// groupDefect says what is wrong with the patch's group.
func (p *PatchEvent) groupDefect() *FieldError {
	text := p.groupText()
	switch {
	case text == nil:
		return nil
	case jsontext.KindOf(text) != jsontext.String:
		return &FieldError{groupName, "want a string, not " + clip(text), WrongField}
	case !utf8.Valid(text):
		return &FieldError{groupName, "it is not valid UTF-8", WrongField}
	case p.Group() == "":
		return &FieldError{groupName, "it is empty; leave it out if there is none", WrongField}
	}
	return nil
}

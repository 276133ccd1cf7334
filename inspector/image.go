package inspector

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"

	"github.com/patchlog-dev/patchlog/patch"
)

// imageTypes are those of data that is shown as an image. None of them can hold a script, as SVG
// can.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"}

// imageOf returns the image that a part holds, and its type. ok is false if the part does not say
// that it is of one of these types, or what it holds is not.
func imageOf(p patch.Part) (data []byte, mimeType string, ok bool) {
	mimeType, _, _ = strings.Cut(strings.ToLower(p.MIMEType), ";")
	mimeType = strings.TrimSpace(mimeType)
	if p.Kind != patch.PartData || !slices.Contains(imageTypes, mimeType) {
		return nil, "", false
	}
	var value struct{ Data string }
	if p.Value.Decode(&value) != nil {
		return nil, "", false
	}
	data, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(value.Data, "="))
	if err != nil || typeOf(data) != mimeType {
		return nil, "", false
	}
	return data, mimeType, true
}

// typeOf is what data looks like.
func typeOf(data []byte) string {
	if len(data) >= 12 && string(data[4:8]) == "ftyp" && (string(data[8:12]) == "avif" || string(data[8:12]) == "avis") {
		return "image/avif"
	}
	return http.DetectContentType(data)
}

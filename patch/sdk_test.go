package patch_test

// Types with the fields of a content's JSON, as an SDK has them.
type (
	sdkContent struct {
		Parts []*sdkPart `json:"parts,omitempty"`
		Role  string     `json:"role,omitempty"`
	}
	sdkPart struct {
		Text             string     `json:"text,omitempty"`
		Thought          bool       `json:"thought,omitempty"`
		ThoughtSignature []byte     `json:"thoughtSignature,omitempty"`
		FunctionCall     *sdkCall   `json:"functionCall,omitempty"`
		FunctionResponse *sdkAnswer `json:"functionResponse,omitempty"`
		InlineData       *sdkBlob   `json:"inlineData,omitempty"`
		VideoMetadata    *sdkVideo  `json:"videoMetadata,omitempty"`
	}
	sdkCall struct {
		ID   string         `json:"id,omitempty"`
		Name string         `json:"name,omitempty"`
		Args map[string]any `json:"args,omitempty"`
	}
	sdkAnswer struct {
		ID       string         `json:"id,omitempty"`
		Name     string         `json:"name,omitempty"`
		Response map[string]any `json:"response,omitempty"`
	}
	sdkBlob struct {
		Data        []byte `json:"data,omitempty"`
		DisplayName string `json:"displayName,omitempty"`
		MIMEType    string `json:"mimeType,omitempty"`
	}
	sdkVideo struct {
		FPS *float64 `json:"fps,omitempty"`
	}
	sdkUsage struct {
		PromptTokenCount int32          `json:"promptTokenCount,omitempty"`
		Details          []*sdkModality `json:"promptTokensDetails,omitempty"`
		TrafficType      string         `json:"trafficType,omitempty"`
	}
	sdkModality struct {
		Modality   string `json:"modality,omitempty"`
		TokenCount int32  `json:"tokenCount,omitempty"`
	}
)

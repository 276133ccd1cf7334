package adkjson

import (
	"strings"
	"sync"
)

// eventNames lists fields of ADK's session event. It lists a field if the field has two spellings, or contains a
// field with two spellings. The comment of eventSchema describes the notation.
const eventNames = `
Event invocationId isolationScope longRunningToolIds content:Content actions:Actions usageMetadata:GenerateContentResponseUsageMetadata
Event customMetadata groundingMetadata:GroundingMetadata citationMetadata:CitationMetadata logprobsResult:LogprobsResult avgLogprobs
Event inputTranscription:Transcription outputTranscription:Transcription
Event liveSessionResumptionUpdate:LiveServerSessionResumptionUpdate sessionResumptionHandle cacheMetadata:Cache modelVersion interactionId
Event turnComplete finishReason errorCode errorMessage requestedInput:RequestedInput nodeInfo:Node
Actions stateDelta artifactDelta skipSummarization transferToAgent requestedAuthConfigs requestedToolConfirmations compaction:Compaction
Actions endOfAgent agentState rewindBeforeInvocationId renderUiWidgets setModelResponse
Compaction startTimestamp endTimestamp compactedContent:Content excludedEvents
Cache cacheName expireTime invocationsUsed contentsCount createdAt
RequestedInput interruptId responseSchema
Node messageAsOutput outputFor
`

// schema describes the fields of an object or the elements of an array. A nil schema means that the value is data,
// whose keys are not translated.
type schema struct {
	fields  map[string]schemaField // fields of an object, by each of their spellings
	element *schema                // schema of the elements of an array
}

type schemaField struct {
	name   string
	schema *schema
}

// base64Text is the schema of strings that contain bytes.
var base64Text = new(schema)

// eventSchema returns the schema of an event. It parses eventNames and genaiNames. Each line contains a type and the
// names of its fields. A field whose value has a schema of its own is written as name:type.
var eventSchema = sync.OnceValue(func() *schema {
	types := map[string]*schema{"Bytes": base64Text}
	var of func(name string) *schema
	of = func(name string) *schema {
		element, array := strings.CutPrefix(name, "[]")
		switch {
		case array:
			return &schema{element: of(element)}
		case name != "" && types[name] == nil:
			types[name] = &schema{fields: map[string]schemaField{}}
		}
		return types[name]
	}
	for line := range strings.Lines(eventNames + genaiNames) {
		words := strings.Fields(line)
		for i, word := range words {
			if i > 0 {
				name, in, _ := strings.Cut(word, ":")
				field := schemaField{name, of(in)}
				of(words[0]).fields[name], of(words[0]).fields[pythonName(name)] = field, field
			}
		}
	}
	return types["Event"]
})

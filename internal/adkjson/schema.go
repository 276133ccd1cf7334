package adkjson

import (
	"strings"
	"sync"
)

// eventNames has the fields of ADK's session event whose names can be spelled in two ways, or that have such
// fields in them, in the notation of genaiNames.
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

// schema is what a value may have: fields with names, or with schemas, of their own, or such elements. nil is a
// datum, whose keys are data.
type schema struct {
	fields map[string]schemaField // of an object, by either spelling
	each   *schema                // of an array
}

type schemaField struct {
	name string
	in   *schema
}

// base64Text is a text of bytes.
var base64Text = new(schema)

// eventSchema is the schema of an event. Each line of the names is a type and its fields, each with its type,
// if it has one, behind a colon.
var eventSchema = sync.OnceValue(func() *schema {
	types := map[string]*schema{"Bytes": base64Text}
	var of func(name string) *schema
	of = func(name string) *schema {
		element, array := strings.CutPrefix(name, "[]")
		switch {
		case array:
			return &schema{each: of(element)}
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

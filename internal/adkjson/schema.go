package adkjson

// The fields of ADK's session event whose names can be spelled in two ways, or that have
// such fields in them. Only names and types count: a struct has fields that ADK or genai
// names, a map has keys that are data, and what is in a datum is data too.
type (
	datum = any

	eventSchema struct {
		InvocationID       datum                                     `json:"invocationId"`
		IsolationScope     datum                                     `json:"isolationScope"`
		LongRunningToolIDs datum                                     `json:"longRunningToolIds"`
		Content            genaiContent                              `json:"content"`
		Actions            actionsSchema                             `json:"actions"`
		UsageMetadata      genaiGenerateContentResponseUsageMetadata `json:"usageMetadata"`
		CustomMetadata     datum                                     `json:"customMetadata"`
		GroundingMetadata  genaiGroundingMetadata                    `json:"groundingMetadata"`
		CitationMetadata   genaiCitationMetadata                     `json:"citationMetadata"`
		LogprobsResult     genaiLogprobsResult                       `json:"logprobsResult"`
		AvgLogprobs        datum                                     `json:"avgLogprobs"`
		InputTranscript    genaiTranscription                        `json:"inputTranscription"`
		OutputTranscript   genaiTranscription                        `json:"outputTranscription"`
		ResumptionUpdate   genaiLiveServerSessionResumptionUpdate    `json:"liveSessionResumptionUpdate"`
		ResumptionHandle   datum                                     `json:"sessionResumptionHandle"`
		CacheMetadata      cacheSchema                               `json:"cacheMetadata"`
		ModelVersion       datum                                     `json:"modelVersion"`
		InteractionID      datum                                     `json:"interactionId"`
		TurnComplete       datum                                     `json:"turnComplete"`
		FinishReason       datum                                     `json:"finishReason"`
		ErrorCode          datum                                     `json:"errorCode"`
		ErrorMessage       datum                                     `json:"errorMessage"`
		RequestedInput     requestedInputSchema                      `json:"requestedInput"`
		NodeInfo           nodeSchema                                `json:"nodeInfo"`
	}

	actionsSchema struct {
		StateDelta                 datum            `json:"stateDelta"`
		ArtifactDelta              datum            `json:"artifactDelta"`
		SkipSummarization          datum            `json:"skipSummarization"`
		TransferToAgent            datum            `json:"transferToAgent"`
		RequestedAuthConfigs       datum            `json:"requestedAuthConfigs"`
		RequestedToolConfirmations datum            `json:"requestedToolConfirmations"`
		Compaction                 compactionSchema `json:"compaction"`
		EndOfAgent                 datum            `json:"endOfAgent"`
		AgentState                 datum            `json:"agentState"`
		RewindBefore               datum            `json:"rewindBeforeInvocationId"`
		RenderUIWidgets            datum            `json:"renderUiWidgets"`
		SetModelResponse           datum            `json:"setModelResponse"`
	}

	compactionSchema struct {
		StartTimestamp   datum        `json:"startTimestamp"`
		EndTimestamp     datum        `json:"endTimestamp"`
		CompactedContent genaiContent `json:"compactedContent"`
		ExcludedEvents   datum        `json:"excludedEvents"`
	}

	cacheSchema struct {
		CacheName       datum `json:"cacheName"`
		ExpireTime      datum `json:"expireTime"`
		InvocationsUsed datum `json:"invocationsUsed"`
		ContentsCount   datum `json:"contentsCount"`
		CreatedAt       datum `json:"createdAt"`
	}

	requestedInputSchema struct {
		InterruptID    datum `json:"interruptId"`
		ResponseSchema datum `json:"responseSchema"`
	}

	nodeSchema struct {
		MessageAsOutput datum `json:"messageAsOutput"`
		OutputFor       datum `json:"outputFor"`
	}
)

// Package forms puts a tool's input schema into the form that a model provider
// takes: OpenAI, Anthropic, Gemini, or text for a prompt.
//
// # Contract
//
// Everything here is a pure function of its arguments: the same tool gives the same
// bytes. Input schemas come from strangers; work and output are bounded whatever they
// say.
//
// What a provider has no word for is widened, not narrowed: the model may then say
// something that the tool refuses (the bridge checks arguments against the original
// schema all the same), but it is not kept from saying what the tool takes. Each
// such change is a note. The exceptions are notes that say so: a property whose name
// the provider refuses, a type that is not said but meant, a property that only some
// alternatives at the top name, and Gemini's lists of lists of any value. Annotations that no validator looks at ($schema, $id, $comment,
// x-…) are left out without a word, and so is Gemini's lack of additionalProperties: false,
// which nearly every tool has and which keeps a model from nothing.
//
// The result is checked against the provider's published rules before it is handed
// out (check.go); what does not pass is replaced by an object that takes anything.
//
// # The rules, and where they are published
//
//   - OpenAI function tools (not strict): name of [a-zA-Z0-9_-], at most 64
//     (API reference, "tools[].function.name"); parameters a JSON Schema of an object
//     without oneOf, anyOf, allOf, enum or not at its top, arrays with items, objects at the
//     top with properties (the API's own error texts, as quoted in
//     github.com/langchain-ai/langchainjs/issues/9804 and
//     github.com/PrefectHQ/fastmcp/issues/2464); a description of at most 1024 characters
//     (github.com/modelcontextprotocol/servers/issues/799). Definitions and recursion are
//     supported (guide "Structured Outputs").
//   - Anthropic: name ^[a-zA-Z0-9_-]{1,64}$ (API reference, Messages, "tools[].name");
//     input_schema a JSON Schema 2020-12 of an object, without $ref anywhere, without
//     oneOf, anyOf or allOf at its top, property names of letters, digits, underscores, dots and
//     hyphens, 1 to 64 (platform.claude.com/docs/en/managed-agents/self-hosted-sandboxes,
//     and the API's error text in github.com/anthropics/claude-code/issues/5319).
//   - Gemini: name of at most 64, beginning with a letter or an underscore, and parameter names
//     that begin with a letter or underscore and hold a-z, A-Z, 0-9 and underscores, at most
//     64 (cloud.google.com Java reference, FunctionDeclaration); parameters in the subset
//     of OpenAPI 3.0 that docs.cloud.google.com/vertex-ai/generative-ai/docs/reference/rest/v1/Schema
//     lists; enum for strings only and without empty ones, format of a string only enum or
//     date-time (firebase.google.com/docs/reference/js/ai.schemashared), items for every array,
//     properties and required for objects only, and no required name that properties lacks (the
//     API's error texts in github.com/Kilo-Org/kilocode/pull/11955 and
//     github.com/anomalyco/opencode/pull/49392).
package forms

"""The fragments of the `detail` of errors that the specification fixes, because clients search for them.

All other wording may differ: two errors are equal if they contain the same fragments.
"""

import re

FRAGMENTS = [
    # docs/spec/http.md 3 to 7, 12, 15
    r"invalid version string: [^;\n]*",
    r"Unacceptable version header: [^;\n]*",
    r"content-length header must be an integer",
    r"content-type header required when content-length > 0",
    r"The resource could not be found\.",
    r"The method (?!specified)\S+ is not allowed for this resource\.",
    r"The media type .* is not supported, use application/json",
    r"Only application/json is provided",
    r"Policy does not allow \S+ to be performed\.",
    r"Malformed JSON",
    r"JSON does not validate: .*?  Failed validating '\w+' in schema\S*(?=: )",
    r"On instance\S*(?=: )",
    r"Invalid query string parameters: (Additional properties are not allowed \(.*?\))?",
    r"'\S*' is a required property",
    r"do(?:es)? not match any of the regexes(?:: '\^(?:in_tree|member_of)\(.*?(?=  Failed))?",
    r"is not a 'uuid'",
    # docs/spec/resources.md 3
    r"No resource provider with uuid .*? found( for delete)?",
    r"Unable to (create|save) resource provider",
    r"name is required",
    r"parent provider UUID cannot be same as UUID",
    r"parent provider UUID does not exist",
    r"re-parenting a provider is not currently allowed\.",
    r"un-parenting a provider is not currently allowed\.",
    r"creating loop in the provider tree is not allowed\.",
    r"Conflicting resource provider .*? already exists",
    r"Unable to delete parent resource provider .*?: It has child resource providers\.",
    r"Unable to delete resource provider .*?: Resource provider has allocations\.",
    r"Multiple values for 'member_of' must be prefixed with the 'in:' or '!in:' keyword",
    r"Expected 'member_of' parameter to contain valid UUID\(s\)\. Got: .*",
    r"Multiple \S+ parameters are not supported",
    r"Forbidden \S+ parameters are not supported in the specified microversion",
    r"Expected 'required' parameter value of the form: \S+\.( Got)?",
    r"Got an empty trait in: .*",
    r"The format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC' (only supported since microversion 1.39|does not support)",
    r'Invalid trait\(s\) in "required" parameter: ',
    r"No such trait\(s\): .*\.",
    r"Badly formed resources parameter\.",
    r"Requested resource .* (expected positive integer amount|requires amount >= 1)\.",
    r"Got: .*\.",
    r"Invalid resource class in resources parameter",
    r"No such resource class \S+",
    # docs/spec/resources.md 4 to 8
    r"Unable to (create|update|delete) inventory for resource provider",
    r"Invalid inventory for '\S+' on resource provider '\S+'\.",
    r"The reserved value is greater than( or equal to)? total\.",
    r"(?i)update conflict",
    r"resource provider generation conflict",
    r"Unknown resource class in inventory for resource provider",
    r"Inventory for '[^']*' on resource provider '\S+' (in use|invalid)",
    r"No inventory of class .*? (for \S+|found for delete)",
    r"No inventory record with resource class",
    r"Unable to delete inventory of class \S+:",
    r"Resource provider's generation already changed\. Please update the generation and try again\.",
    r"No such trait [^(].*",
    r"Badly formatted name parameter\. Expected name query string parameter in form: .*",
    r'The query parameter "associated" only accepts "true" or "false"',
    r"The trait is invalid\. A valid trait must be no longer than 255 characters, .*",
    r"Cannot delete standard trait \S+\.",
    r"The trait \S+ is in use by a resource provider\.",
    r"Conflicting resource class already exists: \S+",
    r"Resource class already exists: \S+",
    r"Cannot (update|delete) standard resource class \S+?\b",
    r"Error in delete resource class:",
    r"Class is in use in inventory\.",
    # docs/spec/allocations.md 12
    r"Malformed consumer_uuid",
    r"Allocation for resource provider '\S+' that does not exist",
    r"No allocations for consumer '\S+'",
    r"Resource provider '\S+' not found",
    r"in inventories not found",
    r"consumer generation conflict - expected \S+ but got \S+",
    r"actual: \d+, given: -?\d+",
    r"Unable to allocate inventory",
    r"for consumer \S+: ",
    r"would (violate inventory constraints|exceed the capacity)",
    r"exceed the capacity",
    r"violate inventory constraints",
    r"malformed reshaper data: ",
    # docs/spec/candidates.md 2.4
    r"Conflicting required and forbidden traits found in .*",
    r"may be specified only once",
    r"Expected 'in_tree' parameter to be a format of uuid",
    r"All \S+ parameters must be associated with resources\.",
    r"orphaned traits keys: .*",
    r"All request groups must specify resources\.",
    r"At least one request group",
    r"There must be at least one resources or resources\[\$S\] parameter\.",
    r"Resourceless suffixed group request should be specified in `same_subtree`",
    r"Real suffixes should be specified in `same_subtree`:",
    r"Empty string \(unsuffixed group\) can not be specified in `same_subtree`",
    r'The "group_policy" parameter is required when specifying more than one "resources\{N\}" parameter\.',
]

_COMPILED = [re.compile(fragment) for fragment in FRAGMENTS]


def fixed_fragments(detail: str) -> list[str]:
    """Return the fixed fragments of a `detail`, each once, in the order of `FRAGMENTS`."""
    matches = (match[0] for fragment in _COMPILED for match in fragment.finditer(detail))
    return list(dict.fromkeys(" ".join(_sorted_names(match).split()) for match in matches))


def first_sentence(detail: str) -> str:
    """Return the sentence for the status, with which a `detail` begins (docs/spec/http.md 6)."""
    return detail.split("\n\n ")[0].strip()


def _sorted_names(fragment: str) -> str:
    """Return a fragment with its lists of names sorted, where their order is not defined."""
    if "in use" in fragment:
        return fragment
    return re.sub(
        r"[\w-]+ ?(, [\w-]+ ?)+",
        lambda names: ", ".join(sorted(names[0].replace(" ", "").split(","))),
        fragment,
    )

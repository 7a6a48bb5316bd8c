"""OpenTelemetry's names for the tool or the prompt that a record tells of."""

from ironcurtain_proxy.model.reply import method_and_target


def test_a_tool_is_named_as_a_tool_and_cut_to_the_length() -> None:
    assert method_and_target("read_file") == ("tools/call", {"gen_ai.tool.name": "read_file"})
    assert method_and_target("read_file", 4) == ("tools/call", {"gen_ai.tool.name": "read"})


def test_a_prompt_is_named_as_a_prompt_and_never_as_a_tool() -> None:
    named = ("prompts/get", {"gen_ai.prompt.name": "fetch"})
    assert method_and_target("prompts/get fetch") == named
    assert method_and_target("prompts/get fetch", 2)[1] == {"gen_ai.prompt.name": "fe"}


def test_a_resource_is_not_named_because_its_uri_is_an_argument() -> None:
    assert method_and_target("resources/read") == ("resources/read", {})
    assert method_and_target("resources/read file:///etc/passwd")[1] == {}

from visavis.local.prompt import CallMemory, note, prefix


def test_instructions_come_after_what_is_always_the_same() -> None:
    assert prefix([]) == prefix(["Be a pirate."])[:-1]
    assert prefix(["Be a pirate.", " "])[-1] == {"role": "system", "content": "Be a pirate."}


def test_notes_stand_in_brackets_before_the_words() -> None:
    assert note("off", "de") == "[Camera off]\n[Answer in German]\n"
    assert note(None, None) == ""


def test_earlier_lines_get_their_notes_back() -> None:
    memory = CallMemory()
    memory.add("c", "What is this?", "[Camera: red]\nWhat is this?", "en")
    memory.add("c", "Thanks.", "Thanks.", "en")
    memory.add("c", "What is this?", "[Camera: blue]\nWhat is this?", "en")
    assert memory.restore("c", ["What is this?", "Unknown", "Thanks.", "What is this?"]) == [
        "[Camera: red]\nWhat is this?",
        "Unknown",
        "Thanks.",
        "[Camera: blue]\nWhat is this?",
    ]


def test_a_call_sees_nothing_of_another_nor_of_requests_without_a_call() -> None:
    memory = CallMemory()
    memory.add("c", "What is this?", "[Camera: red]\nWhat is this?", "fr")
    memory.add("", "What is that?", "[Camera: blue]\nWhat is that?", "fr")
    assert memory.restore("d", ["What is this?"]) == ["What is this?"]
    assert memory.restore("", ["What is that?"]) == ["What is that?"]
    assert memory.language("d") is None
    assert memory.language("") is None
    assert memory.language("c") == "fr"


def test_memory_is_bounded_in_lines_and_calls() -> None:
    memory = CallMemory()
    for i in range(CallMemory.MAX_LINES + 1):
        memory.add("c", str(i), f"[x]\n{i}", "en")
    assert memory.restore("c", ["0"]) == ["0"]
    assert memory.restore("c", ["1"]) == ["[x]\n1"]
    for i in range(CallMemory.MAX_CALLS):
        memory.add(f"call{i}", "a", "[x]\na", "en")
    assert len(memory) == CallMemory.MAX_CALLS
    assert memory.restore("c", ["1"]) == ["1"]

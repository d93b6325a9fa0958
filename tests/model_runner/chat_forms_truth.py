#!/usr/bin/env python3
"""What Jinja makes of the templates of Llama 3, Gemma and Mistral: the truth for chat_test.cc. Writes
chat_forms.jsonl beside this file; needs the package jinja2. Lines are

    [template, [[role, content], ...], add generation prompt, text without the first token]
"""
import json
import pathlib

import jinja2.sandbox

ALTERNATE = ("{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
             "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
             "{% endif %}")
LLAMA3_OLD = ("{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = "
              "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | "
              "trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}"
              "{% endif %}{{ content }}{% endfor %}"
              "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}")
LLAMA3 = LLAMA3_OLD.replace("{% endfor %}", "{% endfor %}{% if add_generation_prompt %}") + "{% endif %}"
GEMMA = ("{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
         "{{ raise_exception('System role not supported') }}{% endif %}" + ALTERNATE +
         "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}"
         "{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + "
         "message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}"
         "{{'<start_of_turn>model\n'}}{% endif %}")
MISTRAL = ("{{ bos_token }}" + ALTERNATE +
           "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
           "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% else %}"
           "{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}"
           "{% endfor %}")

CONVERSATIONS = [
    [["user", "Hello!"]],
    [["user", "1 + 1?"], ["assistant", "2\n"], ["user", "\n\n  And 2 + 2?\t\n"]],
    [["user", "straße 漢字 👩🏿‍🚀 it's"], ["assistant", ""], ["user", ""]],
]
WITH_SYSTEM = [[["system", " You answer in verse.\n"], ["user", "What is a page?"]]]


def main():
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    rows = []
    for template in (LLAMA3, LLAMA3_OLD, GEMMA, MISTRAL):
        system = WITH_SYSTEM if "start_header_id" in template else []
        for conversation in CONVERSATIONS + system:
            for prompt in (False, True):
                if template is LLAMA3_OLD and not prompt:
                    continue  # it does not know the difference
                messages = [{"role": role, "content": content} for role, content in conversation]
                text = environment.from_string(template).render(
                    messages=messages, add_generation_prompt=prompt, bos_token="", eos_token="</s>")
                rows.append([template, conversation, prompt, text])
    file = pathlib.Path(__file__).resolve().parent / "chat_forms.jsonl"
    file.write_text("".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"
                            for row in rows))


if __name__ == "__main__":
    main()

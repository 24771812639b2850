"""Tests that `make test` leaves to `make test-all`, beside those that are marked `slow`.

Each shows for another model, file or moment what a test of `make test` shows for the first one.
"""

import re

# file -> regular expressions of the names of its tests
SIBLINGS = {
    "end_to_end/test_devices.py": [r"test_(?!eight_devices_equal_one\[fsdp\]).*"],
    "end_to_end/test_gemma_weights.py": [r".*\[gemma3\]"],
    "end_to_end/test_llava_evaluation.py": [
        "test_every_result_says_protocol_prompt_and_checkpoint",
        "test_a_trained_llava_is_exported_as_a_folder_that_scores_alike",
        "test_a_captioner_of_the_scenes_describes_.*",
    ],
    "end_to_end/test_llava_weights.py": [r"test_a_folder_scores_by_vqascore\[cls\]"],
    "end_to_end/test_object_store.py": ["test_(?!what_is_wrong_).*"],
    "end_to_end/test_resume.py": [
        r"test_sigterm_saves_.*\[(compile|evaluation)\]",
        "test_sigterm_while_waiting_.*",
        "test_what_comes_first_.*",
    ],
    "end_to_end/test_text_encoders.py": ["test_the_command_continues_vectors_.*"],
    "models/test_decode.py": [r".*\[left\]"],
    "input_pipeline/commands/test_prepare_datasets.py": [r"test_a_run_that_is_stopped_.*\[9\]"],
    "models/test_captioner.py": [
        r"test_score_is_the_mean_log_probability_.*\[(cls|pooled)\]",
        "test_a_decoder_held_in_the_type_of_its_products_.*",
        r"test_an_image_or_a_prompt_is_seen_.*\[prompt-.*\]",
    ],
    "models/test_clip.py": [
        r"test_remat_equals_plain_.*\[(?!clip-block).*\]",
        r"test_work_left_out_.*\[(siglip|eva02)\]",
    ],
    "models/test_dcsm.py": [r"test_chunks_change_.*\[(?!tensor-2).*\]"],
    "models/test_lora_factors.py": [r".*\[(scanned|packed)-.*\]", r".*\[decoder-True\]"],
    "models/test_scan_layers.py": [r"test_value_and_gradient_.*\[(?!clip-none|tokens-none).*\]"],
    "models/test_variants.py": [
        r"test_parameter_counts_.*\[(?!B/32|L/14-overrides|SigLIP-B/16-overrides7|EVA02-B/16).*\]"
    ],
    "models/test_heads.py": [
        r"test_parts_on_many_devices_.*\[(?!pacl).*\]",
        r"test_a_mesh_of_explicit_axes_.*\[(?!pacl).*\]",
    ],
    "run/processes/test_peers.py": [
        r"test_a_host_that_is_gone_.*\[1\]",
        r"test_a_killed_process_.*\[1\]",
        r"test_an_end_that_would_come_again_.*\[(2|31)\]",
        r"test_a_crash_is_infrastructure_.*\[1\]",
        "test_a_crash_after_.*",
        "test_after_a_kill_.*",
        "test_absent_.*",
        "test_the_stacks_.*",
    ],
    "configs/test_configs.py": [
        r"test_state_of_the_full_config_.*\[configs/(pretrain|llava|eval)/.*\]",
        r"test_state_of_the_full_config_.*\[configs/(clip_coco|siglip_ft)\.py\]",
        r"test_state_of_the_full_config_.*\[configs/(?!hp_hn|clip_ft).*:data=.*\]",
    ],
    "configs/test_llava_configs.py": [r"test_sizes_and_what_is_trained\[(?!vicuna_7b).*\]"],
    "train/test_families.py": [r".*\[(?!pe).*\]"],
    "train/test_flops.py": [
        r"test_forward_flops_are_.*\[(?!B/32|SigLIP-B/16|EVA02-B/16).*\]",
        r"test_rematerialised_work_.*\[(?!remat).*\]",
    ],
    "train/test_microbatch.py": [
        r"test_microbatches_give_.*\[(?!clip-8|pacl-8).*\]",
        r"test_memory_is_that_.*\[(?!clip).*\]",
    ],
    "plan/test_plan.py": [
        "test_a_plan_compiles_.*",
        "test_nothing_that_fits_.*",
        r"test_a_step_of_a_decoder_is_traced_.*\[(?!llava).*\]",
    ],
}


def is_sibling(file: str, name: str) -> bool:
    """file: below tests/; name: of a test, with its parameters in brackets."""
    return any(re.fullmatch(pattern, name) for pattern in SIBLINGS.get(file, ()))

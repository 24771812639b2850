def use_lora(config):
    config.lora.targets = (
        ".*/attention/(query_key_value|out)/kernel|.*/mlp/(up|down)/kernel"
        "|image/patch_embedding/convolution/kernel"
    )
    config.lora.rank = 4
    config.lora.alpha = 1.0
    config.lora.b_initialisation = "xavier"

"""Weights in 4 and 8 bits as bitsandbytes makes them, and models that compute with what the codes say."""
import bitsandbytes.functional as bnb
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

# Deck keys by the name of a run.
FORMS = {"nf4_double": {"lora.quantization": "nf4"},
         "nf4": {"lora.quantization": "nf4", "lora.double_quantization": False},
         "fp4_double": {"lora.quantization": "fp4"},
         "fp4": {"lora.quantization": "fp4", "lora.double_quantization": False},
         "int8": {"lora.quantization": "int8"}}
GROUP = 256     # scales that share a scale


def kept_scales(scales):
    """What 8-bit codes of scales say. bitsandbytes' library for CPUs looks a code up by 16 bits of the number, which for
    about one in a thousand is not the nearest; its kernels for GPUs and its reference take the nearest, as here."""
    levels = bnb.create_dynamic_map()
    between = (levels[:-1] + levels[1:]) / 2
    mean = scales.double().mean().float()   # rounded once, whatever the order of the sum
    found = []
    for group in (scales - mean).split(GROUP):
        largest = group.abs().max()
        scaled = group * (1 / largest) if len(group) == GROUP else group / largest.clamp(min=1e-38)
        found.append(levels[torch.bucketize(scaled.clamp(-1, 1), between)] * largest)
    return torch.cat(found) + mean


def dequantized(weight, form):
    if form == "int8":
        codes, scales, _ = torch.ops.bitsandbytes.int8_vectorwise_quant(weight.clone(), 0.0)
        return torch.ops.bitsandbytes.int8_vectorwise_dequant(codes, scales)
    codes, state = bnb.quantize_4bit(weight, quant_type=form[:3])
    if form.endswith("_double"):
        state.absmax = kept_scales(state.absmax)
    state.shape = torch.Size([weight.numel()])      # blocks go on over rows: see has_whole_blocks
    return bnb.dequantize_4bit(codes, state).reshape(weight.shape)


def quantized_layers(model):
    return {name: module for name, module in model.named_modules()
            if isinstance(module, torch.nn.Linear) and name != "lm_head"}


def with_codes(model, form):
    """The model with the weights of its blocks' linear layers replaced by what their codes say."""
    with torch.no_grad():
        for module in quantized_layers(model).values():
            module.weight.copy_(dequantized(module.weight, form))
    return model


def has_whole_blocks(model):
    """Whether each row is whole blocks of 64. bitsandbytes' kernel for CPUs decodes other rows with scales of other blocks
    than those for which it made the codes; its kernels for GPUs and its reference do not."""
    return all(module.in_features % 64 == 0 for module in quantized_layers(model).values())


def in_bitsandbytes(folder, form):
    """The model as users of PEFT load it, with codes and products of bitsandbytes."""
    config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=form[:3], bnb_4bit_compute_dtype=torch.float32,
                                bnb_4bit_use_double_quant=form.endswith("_double"))
    return AutoModelForCausalLM.from_pretrained(folder, quantization_config=config, dtype=torch.float32, device_map="cpu")

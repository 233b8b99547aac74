"""What PyTorch, transformers and PEFT make of a model."""
import fnmatch
import warnings

import peft
import torch
from transformers import AutoModelForCausalLM


def load(folder, dtype=torch.float32):
    """Fails when transformers misses or does not know a tensor."""
    model, report = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, output_loading_info=True)
    if any(report.values()):
        raise RuntimeError(f"{folder}: transformers says {report}")
    return model


def load_adapter(model, folder, trainable=False):
    """PEFT's model with the adapters of a folder. Its warnings, such as of keys that are missing, are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", FutureWarning)  # what peft still uses of transformers
        adapted = peft.PeftModel.from_pretrained(model, str(folder), is_trainable=trainable)
        report = adapted.load_adapter(str(folder), "default", is_trainable=trainable)
    missing = [key for key in report.missing_keys if "lora_" in key]
    if missing or report.unexpected_keys:
        raise RuntimeError(f"{folder}: PEFT misses {missing} and does not expect {report.unexpected_keys}")
    return adapted


def freeze(model, trainable, frozen, our_name):
    """The patterns as model.trainable and model.frozen take them. our_name gives ztrain's name of a parameter."""
    for name, parameter in model.named_parameters():
        def matches(patterns):
            return any(fnmatch.fnmatchcase(our_name(name), pattern) for pattern in patterns)
        parameter.requires_grad_(matches(trainable) and not matches(frozen))
    return model


def sum_of_losses(model, ids, targets, weights):
    logits = model(input_ids=ids, use_cache=False).logits
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="none")
    return (losses * weights.flatten()).sum()


def train(model, chunks, keys):
    """(losses, gradient norms before clipping) of AdamW steps over all chunks, a backward call for each, as deck keys
    say."""
    decay, trained = keys["optimizer.weight_decay"], [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW([{"params": [p for p in trained if p.dim() > 1], "weight_decay": decay},
                                   {"params": [p for p in trained if p.dim() == 1], "weight_decay": 0.0}],
                                  lr=keys["optimizer.lr"], betas=keys["optimizer.betas"], eps=keys["optimizer.eps"])
    count = sum(weights.sum().item() for chunk in chunks for _, _, weights in chunk)
    losses, norms = [], []
    for _ in range(keys["run.steps"]):
        optimizer.zero_grad()
        loss = 0.0
        for chunk in chunks:
            part = sum(sum_of_losses(model, *document) for document in chunk) / count
            part.backward()
            loss += part.item()
        norms.append(torch.nn.utils.clip_grad_norm_(trained, keys["optimizer.max_norm"]).item())
        optimizer.step()
        losses.append(loss)
    return losses, norms


def logits(model, prompt):
    with torch.no_grad():
        return model.eval()(input_ids=torch.tensor([prompt]), use_cache=False).logits[0].numpy()


def continue_greedily(model, prompt, count):
    ids = torch.tensor([prompt])
    found = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count,
                           eos_token_id=None, pad_token_id=0)
    return found[0, len(prompt):].tolist()

"""What PyTorch, transformers and PEFT make of a model."""
import fnmatch
import unittest.mock
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


def with_magnitudes(model, folder):
    """The model with the adapters of a folder and DoRA's magnitudes, which PEFT starts as norms of the base's rows."""
    config = peft.LoraConfig.from_pretrained(str(folder))
    config.use_dora, config.inference_mode = True, False
    adapted = peft.get_peft_model(model, config)
    factors = {key: value for key, value in peft.load_peft_weights(str(folder)).items() if "magnitude" not in key}
    report = peft.set_peft_model_state_dict(adapted, factors)
    if report.unexpected_keys or any("lora_A" in key or "lora_B" in key for key in report.missing_keys):
        raise RuntimeError(f"{folder}: PEFT says {report}")
    return adapted


def new_adapter(model, targets, whole, dora):
    """A model with drawn adapters of rank 4, scaled as rsLoRA, and modules that are trained whole."""
    torch.manual_seed(3)
    return peft.get_peft_model(model, peft.LoraConfig(
        r=4, lora_alpha=2, target_modules=targets, modules_to_save=whole or None, use_rslora=True,
        init_lora_weights=False, use_dora=dora, task_type="CAUSAL_LM"))


def freeze(model, trainable, frozen, our_name):
    """The patterns as model.trainable and model.frozen take them. our_name gives ztrain's name of a parameter."""
    for name, parameter in model.named_parameters():
        def matches(patterns):
            return any(fnmatch.fnmatchcase(our_name(name), pattern) for pattern in patterns)
        parameter.requires_grad_(matches(trainable) and not matches(frozen))
    return model


def sums_of_losses(model, balanced, ids, targets, weights):
    """(of the tokens, of what is minimised). The loss that balances experts is a mean over tokens, all of which must have
    the weight 1."""
    out = model(input_ids=ids, use_cache=False, **({"output_router_logits": True} if balanced else {}))
    losses = torch.nn.functional.cross_entropy(out.logits.flatten(0, 1).float(), targets.flatten(), reduction="none")
    loss = (losses * weights.flatten()).sum()
    return loss, loss + (model.config.router_aux_loss_coef * out.aux_loss * weights.sum() if balanced else 0)


class Routers:
    """Routers of DeepSeek-V3: the loss of each sequence that balances their experts, and biases that follow the loads
    (section 2.1.2)."""

    def __init__(self, model, keys):
        self.speed = keys.get("experts.bias_update_speed", 0)
        self.alpha = keys.get("model.router_aux_loss_coef", 0) if keys.get("experts.balance") == "sequence" else 0
        self.passed, self.loads = [], {}
        for module in model.modules():
            if hasattr(module, "e_score_correction_bias"):
                module.register_forward_hook(self.note)

    def note(self, router, _, output):
        logits, _, chosen = output
        self.passed.append((logits, chosen))
        load = torch.bincount(chosen.flatten(), minlength=router.num_experts)
        self.loads[router] = self.loads.get(router, 0) + load

    def loss(self, weights):
        """Of the sequences that have passed since it was asked for last, each times its weights [sequences, tokens]."""
        total = 0.0
        for logits, chosen in self.passed:
            scores = logits.sigmoid().view(*weights.shape, -1)
            shares = (scores / scores.sum(-1, keepdim=True)).mean(1)
            count = torch.nn.functional.one_hot(chosen, logits.shape[-1]).sum(1).view(scores.shape)
            load = count.float().mean(1) * logits.shape[-1] / chosen.shape[-1]
            total = total + self.alpha * ((load * shares).sum(-1) * weights.sum(-1)).sum()
        self.passed.clear()
        return total

    def move(self):
        """Called behind each step."""
        for router, load in self.loads.items():
            router.e_score_correction_bias += self.speed * torch.sign(load.double().mean() - load)
        self.loads.clear()


class Optimizers:
    """Steps by AdamW, or by Muon for the matrices of hidden layers and by AdamW for all else, as deck keys say."""

    ADJUST = {"rms": "match_rms_adamw", "spectral": "original"}

    def __init__(self, named, keys):
        groups = {True: [], False: [], "hidden": []}
        for name, p in named:   # biases of experts are a matrix
            matrix = p.dim() > 1 and not name.endswith("bias")
            hidden = keys["optimizer.name"] == "muon" and matrix and not ("embed" in name or "lm_head" in name)
            groups["hidden" if hidden else matrix].append(p)
        lr, decay = keys["optimizer.lr"], keys["optimizer.weight_decay"]
        self.all = [torch.optim.AdamW([{"params": groups[True], "weight_decay": decay},
                                       {"params": groups[False], "weight_decay": 0.0}],
                                      lr=lr, betas=keys["optimizer.betas"], eps=keys["optimizer.eps"])]
        if groups["hidden"]:
            self.all.append(torch.optim.Muon(groups["hidden"], lr=lr, weight_decay=decay, momentum=0.95, nesterov=True,
                                             adjust_lr_fn=self.ADJUST[keys["optimizer.muon_scale"]]))

    def zero_grad(self):
        for optimizer in self.all:
            optimizer.zero_grad()

    def step(self):
        """Keeps Muon's matrices in fp32: torch.optim.Muon would round them to bf16 before it orthogonalises them."""
        with unittest.mock.patch.object(torch.Tensor, "bfloat16", torch.Tensor.float):
            for optimizer in self.all:
                optimizer.step()


def train(model, chunks, keys):
    """Returns (losses of the tokens, gradient norms before clipping). Steps over all chunks as deck keys say, with a
    backward call for each chunk."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    trained, optimizer = [p for _, p in named], Optimizers(named, keys)
    count = sum(weights.sum().item() for chunk in chunks for _, _, weights in chunk)
    losses, norms = [], []
    routers = Routers(model, keys)
    for _ in range(keys["run.steps"]):
        optimizer.zero_grad()
        loss = 0.0
        for chunk in chunks:
            sums = []
            for document in chunk:
                part, whole = sums_of_losses(model, keys.get("experts.balance") == "model", *document)
                sums.append((part, whole + routers.loss(document[2])))
            (sum(whole for _, whole in sums) / count).backward()
            loss += (sum(part for part, _ in sums) / count).item()
        norms.append(torch.nn.utils.clip_grad_norm_(trained, keys["optimizer.max_norm"]).item())
        optimizer.step()
        routers.move()
        losses.append(loss)
    return losses, norms


def logits(model, prompt):
    with torch.no_grad():
        return model.eval()(input_ids=torch.tensor([prompt]), use_cache=False).logits[0].numpy()


def mean_loss(model, chunks):
    """Of all tokens of chunks that are to be predicted."""
    with torch.no_grad():
        parts = [(sums_of_losses(model.eval(), False, *part)[0].item(), part[2].sum().item())
                 for chunk in chunks for part in chunk]
    return sum(loss for loss, _ in parts) / sum(count for _, count in parts)


def log_probabilities(model, item):
    """Of each choice of an item behind its context."""
    found = []
    for choice in item["choices_ids"]:
        ids = torch.tensor(item["context_ids"] + choice)
        with torch.no_grad():
            rows = model.eval()(input_ids=ids[None, :-1], use_cache=False).logits[0].double().log_softmax(-1)
        found.append(rows[-len(choice):].gather(1, ids[-len(choice):, None]).sum().item())
    return found


def continue_greedily(model, prompt, count):
    ids = torch.tensor([prompt])
    found = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count,
                           eos_token_id=None, pad_token_id=0)
    return found[0, len(prompt):].tolist()

"""The advisor: which protocol, with which parameters, for a given group, network and budget (docs/advise.md).

| file | contents |
|---|---|
| `question.py` | what the user asks: group, network, load, limits, what to minimise |
| `candidates.py` | what can be answered: protocols with the parameters that they declare worth trying |
| `workload.py` | the simulation of one candidate, and what is read off it |
| `race.py` | which candidate is simulated next, and which is dropped |
| `selection.py` | how sure the order of the candidates is |
| `trials.py` | simulations here or on Spark, each result kept in a store |
| `advice.py` | the answer |
| `evidence.py` | the plan and the report behind it |
| `live_status.py` | the question that the status of a running member poses |
"""

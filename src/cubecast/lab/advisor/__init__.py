"""The advisor: which protocol, with which parameters, for a given group, network and budget (docs/advise.md).

| file | contents |
|---|---|
| `question.py` | the user's question: group, network, load, limits, and what to minimise |
| `candidates.py` | the possible answers: protocols with the parameter values that they declare worth trying |
| `workload.py` | the simulation of one candidate, and the values taken from it |
| `race.py` | which candidate is simulated next, and which is dropped |
| `selection.py` | the confidence in the order of the candidates |
| `trials.py` | simulations in this process or on Spark, with every result kept in a store |
| `advice.py` | the answer |
| `evidence.py` | the plan and the report behind the answer |
| `live_status.py` | a question derived from the status of a running member |
"""

"""The numbers that the paper reports: mean and ± of every cell of Table 1, columns as in cells.py.

Its Table 2 and the numbers of Figure 5 are scrambled in the copy that was read; nothing of them is given here.
"""

TABLE1 = """
fedavg       97.93 0.02  80.09 1.57  82.95 1.69  53.64 3.39  39.46 0.88  38.04 2.92
fedprox      98.01 0.00  89.99 0.98  83.41 2.34  55.13 0.04  40.93 1.68  39.30 2.02
fednova      97.67 0.01  75.68 0.14  77.97 5.35  47.90 2.65  37.89 0.74  25.97 3.32
scaffold     97.94 0.03  86.06 0.93  79.99 2.50  49.62 1.17  17.14 2.11  33.83 0.13
dynafed      98.13 0.04  95.69 0.93  75.50 6.28  57.23 1.56  43.06 3.61  27.41 1.94
feddm        95.43 0.02  95.38 0.12  95.52 0.03  42.44 0.15  41.15 0.12  41.99 0.19
feddualmatch 96.94 0.03  97.03 0.04  97.00 1.11  44.61 1.02  44.98 0.40  43.75 0.68
"""
